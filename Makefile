PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: demo test test-faults test-matrix fuzz lint format examples docs site package clean

demo: $(VENV)/.ready
	$(BIN)/spml demo --out demo

test: $(VENV)/.ready-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile \
		--cov --cov-report=term:skip-covered --cov-fail-under=90

test-faults: $(VENV)/.ready-dev
	$(BIN)/python -m pytest tests/faults \
		tests/train/test_nonfinite.py tests/train/test_device.py tests/runs/test_checkpoint.py -m "faults or not faults"

fuzz: $(VENV)/.ready-fuzz
	OMP_NUM_THREADS=1 nice $(BIN)/python tools/fuzz.py

test-matrix:
	$(PYTHON) tools/test_matrix.py

lint: $(VENV)/.ready-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python tools/figures_check.py
	$(BIN)/python tools/verdicts_check.py

format: $(VENV)/.ready-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

examples: $(VENV)/.ready-dev
	rm -rf build/examples
	$(BIN)/python examples/new_loss.py
	$(BIN)/python examples/photos_to_server.py
	$(BIN)/python examples/presence_only.py

docs: $(VENV)/.ready-dev
	$(BIN)/python tools/method_pages.py docs/framework.md docs/methods.md docs/bibliography.md docs/methods
	$(BIN)/python tools/command_pages.py docs/commands.md
	$(BIN)/python benchmarks/choosing.py docs/choosing.md
	$(BIN)/python benchmarks/selection_tables.py docs/selection.md
	$(BIN)/python benchmarks/calibration.py --docs docs/calibration.md
	$(BIN)/python benchmarks/reproduction.py

site: $(VENV)/.ready-docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	$(BIN)/python tools/site_check.py build/site

package: $(VENV)/.ready-release
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

clean:
	rm -rf $(VENV) demo build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage*

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.ready: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP) --editable .
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready
	$(PIP) --editable ".[dev]"
	@touch $@

$(VENV)/.ready-fuzz: $(VENV)/.ready-dev
	$(PIP) atheris
	@touch $@

$(VENV)/.ready-docs: $(VENV)/.ready
	$(PIP) --editable ".[docs]"
	@touch $@

$(VENV)/.ready-release: $(VENV)/.ready
	$(PIP) --editable ".[release]"
	@touch $@
