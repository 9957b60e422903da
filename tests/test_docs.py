"""The examples of README and docs run as pasted."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import tyro

ROOT = Path(__file__).parents[1]


@pytest.fixture(autouse=True)
def benchmarks(monkeypatch):
    """The scripts of benchmarks/ and tools/ can be imported."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    monkeypatch.syspath_prepend(ROOT / "tools")


def recorded(name):
    """The content of a file of recorded results."""
    return json.loads((ROOT / "benchmarks" / "results" / f"{name}.json").read_text("utf-8"))


def text_of(page):
    return (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


def blocks(name, language):
    text = (ROOT / name).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


EXAMPLES = {  # page: what its example prints, and its longest length
    "README.md": (r"\d\.\d{3}\n", 11),
    "docs/sklearn.md": (r"\['car' 'cat' 'dog' 'tree'\] \(200, 4\) 0\.[89]\d\n", 10),
}


@pytest.mark.parametrize("page", EXAMPLES)
def test_the_example_of_the_library_runs_as_pasted(page, tmp_path):
    printed, longest = EXAMPLES[page]
    (example,) = blocks(page, "python")
    command = [sys.executable, "-c", example]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(printed, done.stdout), done.stdout
    assert len([line for line in example.splitlines() if line.strip()]) <= longest


@pytest.mark.parametrize(
    ("page", "more"),
    [
        ("calibration", "assert set(record['overall']['macro_f1']) >= {'value', 'low', 'high'}"),
        ("explain", "assert maps.shape[:2] == logits.shape == (2, len(info.classes))"),
        ("predict", "assert len(probabilities) == len(info.classes)"),
    ],
)
def test_the_example_of_a_page_runs_as_pasted(page, more, finished, tmp_path, monkeypatch):
    import torch
    from PIL import Image

    example = "\n".join(blocks(f"docs/{page}.md", "python"))
    shutil.copytree(finished, tmp_path / "runs" / "photos")
    Image.new("RGB", (30, 20)).save(tmp_path / "photo.jpg")
    monkeypatch.chdir(tmp_path)
    exec(f"{example}\n{more}", {"pictures": torch.zeros(2, 3, 40, 40, dtype=torch.uint8)})


def test_the_readme_names_commands_and_files_that_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert "make demo" in text and "make test" in text
    for target in re.findall(r"\]\((?!http)([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


def anchors(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    headings = [
        re.sub(r"[^\w\- ]", "", line.lower())
        for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    return {heading.strip().replace(" ", "-") for heading in headings}


PAGES = sorted(path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_between_pages_resolve(page):
    file = ROOT / "docs" / page
    for target in re.findall(r"\]\((?!http)([^)]+)\)", file.read_text(encoding="utf-8")):
        path, _, anchor = target.partition("#")
        assert (file.parent / path).exists(), target
        assert not anchor or anchor in anchors(file.parent / path if path else file), target


def test_the_first_example_of_add_a_method_works(tmp_path, monkeypatch):
    """tests/losses/test_one_file.py covers the next one."""
    (tmp_path / "mine.py").write_text(blocks("docs/add-a-method.md", "python")[0])
    monkeypatch.syspath_prepend(tmp_path)
    import torch

    from spml import losses

    loss = losses.create("mine:soft_negative", strength=0.3)
    z = torch.randn(4, 3, requires_grad=True)
    loss(z, torch.eye(4, 3), epoch=1, epochs=2, index=None).backward()
    assert z.grad is not None
    assert [o.name for o in losses.options("mine:soft_negative")] == ["strength"]


def test_the_example_of_a_method_that_looks_at_features_trains(
    scenes, quick, tmp_path, monkeypatch
):
    (tmp_path / "peaks.py").write_text(blocks("docs/add-a-method.md", "python")[-1])
    monkeypatch.syspath_prepend(tmp_path)
    import numpy as np
    import torch

    from spml import losses
    from spml.data import load
    from spml.errors import UserError
    from spml.train import fit

    maps, observed = torch.randn(4, 3, 2, 2), torch.eye(4, 3)
    logits = maps.mean(dim=(2, 3))
    positive, negative = maps.amax(dim=(2, 3)).sigmoid(), (-logits).sigmoid()
    expected = -torch.where(observed == 1, positive, negative).log().mean()
    call = {"features": maps, "epoch": 1, "epochs": 1, "index": None}
    assert torch.allclose(losses.create("peaks:peaks")(logits, observed, **call), expected)
    settings = replace(quick, method="peaks:peaks", epochs=1)
    result = fit(scenes, settings, tmp_path / "run", quiet=True)
    assert result["method"] == "peaks:peaks" and result["test_map"] > 0
    labels, names = np.tile(np.eye(3, dtype=np.int8), (4, 1)), np.array(["a", "b", "c"])
    np.savez(tmp_path / "vectors.npz", x=np.ones((12, 4), np.float32), labels=labels, classes=names)
    vectors = load(tmp_path / "vectors.npz", labels="observed")
    with pytest.raises(UserError, match="peaks looks at class maps: give pictures"):
        fit(vectors, replace(settings, backbone="linear"), tmp_path / "none", quiet=True)


def test_every_method_has_its_page():
    from spml import losses
    from spml.cli.commands.train import Train
    from spml.cli.set_options import parse_options

    for name in losses.names():
        page = (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")
        for part in ("Idea", "Loss", "In the framework", "State and cost", "Differences"):
            assert f"**{part}" in page, f"{name}: {part}"
        assert "| option | default | what it is |" in page
        commands = page.replace("\\\n", "")
        examples = re.findall(r"^spml (train .*)$", commands, re.MULTILINE)
        assert examples and f"--method {name}" in examples[0]
        for example in examples:
            command = tyro.cli(Train, args=shlex.split(example)[1:])
            parse_options(command.method, command.set)


def generated_tables():
    """Every generated table with its page: name of the table, page, text."""
    import calibration_tables
    import choosing
    import digits_grid
    import digits_methods
    import method_cost
    import selection_tables as selection

    yield "methods", digits_methods.tables(recorded("digits-methods"))
    yield "methods", method_cost.tables(recorded("method-cost"))
    yield "digits", digits_grid.tables(recorded("digits-grid"))
    folder = ROOT / "benchmarks" / "results"
    results = calibration_tables.read(folder), calibration_tables.made_up(folder)
    pages = {"calibration": calibration_tables.tables(*results), "selection": selection.tables()}
    for page, tables in pages.items():
        for name, table in tables.items():
            yield page, f"<!-- generated: {name} -->\n{table}\n<!-- end -->"
    yield "choosing", f"<!-- generated: choosing -->\n{choosing.choosing()}\n<!-- end -->"


def test_the_tables_of_pages_are_those_of_the_recorded_results():
    import command_pages

    assert text_of("commands") == command_pages.page(), "make docs writes it again"
    for page, table in generated_tables():
        assert table in text_of(page), f"make docs writes docs/{page}.md again"


def test_the_cost_of_a_method_is_measured_and_written_to_a_page(monkeypatch, tmp_path, capsys):
    import method_cost

    page, figures = tmp_path / "page.md", tmp_path / "cost.json"
    page.write_text("before\n<!-- generated: method_cost -->\nold\n<!-- end -->\nafter\n")
    words = shlex.split(
        "--accelerator cpu --backbone tiny --size 16 --data voc --budget 0.01 "
        "--only role --only em_apl "
        """--also em_apl '{"base": "gr"}'"""
    )
    monkeypatch.setattr(sys, "argv", ["method_cost.py", *words, "--json", str(figures)])
    method_cost.main()
    rows = {row["row"]: row for row in json.loads(figures.read_text())["rows"]}
    assert list(rows) == ["role", "em_apl", "em_apl, base gr"]
    assert rows["role"]["own_optimizer_seconds"] > 0
    assert rows["role"]["kept_bytes"] == 3 * 4 * 4574 * 20
    assert rows["em_apl"]["between_seconds"] > 0 and rows["em_apl"]["options"]["beta"] == 0.02
    monkeypatch.setattr(
        sys, "argv", ["method_cost.py", "--json", str(figures), "--docs", str(page)]
    )
    method_cost.main()
    assert page.read_text().startswith(
        "before\n<!-- generated: method_cost -->\nvoc: batch 8, 20 classes, 4,574 items."
    )
    assert page.read_text().endswith("<!-- end -->\nafter\n")
    assert "| em_apl, base gr |" in page.read_text()


def test_a_search_has_six_trials_and_is_decided_by_validation():
    from digits_methods import SEARCH, chosen, rows, tables, trials_of

    from spml import losses

    assert set(SEARCH) <= set(losses.names())
    assert all(len(trials_of(name)) == 6 for name in losses.names())
    row = {"method": "ll_r", "seed": 0, "versions": {"torch": "2"}}
    trials = [
        {**row, "row": f"ll_r: {n}", "given": {"delta": n / 100}, "val_map": 50.0 + n}
        | {"settings": {}, "test_map": 90.0 - n}
        for n in range(6)
    ]
    assert chosen(trials[:5]) == [] and chosen(trials) == [trials[5]]
    assert rows(trials)["ll_r, searched"].options == {"delta": 0.05}
    runs = [
        {**row, "row": name, "given": {}, "settings": {}, "val_map": 1.0, "test_map": test_map}
        for name, test_map in (("an", 60.0), ("an", 62.0), ("ll_r", 70.0), ("ll_r", 71.0))
    ]
    page = tables({"runs": runs, "trials": trials})
    assert "| ll_r |  | 70.50 ± 0.71 | +9.50 | 2 |\n| an |  | 61.00 ± 1.41 |  | 2 |" in page


def test_the_tables_of_the_performance_page_are_those_of_the_recorded_results():
    from render import TABLES, render

    pages = [text_of(name) for name in ("performance", "predict", "review", "sklearn")]
    assert [render(page) for page in pages] == pages
    assert all(f"<!-- generated: {name} -->" in "".join(pages) for name in TABLES)


def test_compiling_by_default_begins_above_the_recorded_break_even():
    from render import break_even

    from spml.train.resolve import COMPILE_FROM

    assert break_even() == pytest.approx(160_000, rel=0.03) and break_even() < COMPILE_FROM
    page = text_of("performance")
    assert f"instead from {COMPILE_FROM:,} images" in page and "about 160,000" in page


def test_estimated_ranges_hold_as_often_as_the_page_promises():
    from calibration_tables import held, made_up, read

    results = ROOT / "benchmarks" / "results"
    records = [*read(results), *made_up(results)]
    assert min(held(records, figure) for figure in ("map", "macro_f1")) >= 0.9


def test_the_calibration_benchmark_accepts_any_run_with_scores(finished, tmp_path):
    from calibration import examined
    from calibration_tables import BASELINES, OURS, tables

    (record,) = examined("scenes", finished, 1, tmp_path)
    assert {OURS, *BASELINES} <= set(record["test"])
    assert set(record["halves"]) == set(record["test"])
    assert len(record["epochs"]["true"]) == 3 and set(record["estimates"]) >= {"map", "macro_f1"}
    ours = {**record["test"][OURS], "macro_f1": 0.0}
    worse = {**record, "test": {**record["test"], OURS: ours}}
    assert "1 runs × 2 draws" in tables([record, worse])["calibration_test"]
    assert "does **not** beat" in tables([worse])["calibration_verdict"]


def test_the_page_on_choosing_prints_every_method_that_was_run():
    from choosing import voc_maps

    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "benchmarks/choosing.py docs/choosing.md" in makefile
    trials = set()
    for path in (ROOT / "benchmarks" / "results" / "voc2012-lite0").glob("*.json"):
        run = json.loads(path.read_text())
        times = 1.0 if run["config"].get("head", "").startswith("query") else 10.0
        usual = run["settings"]["lr"] == 5e-5 and run["settings"]["head_lr"] == times
        if usual and not run["options"]:
            trials.add(run["method"])
    assert trials <= set(voc_maps()), "what was run is not printed as not run"


def test_a_run_with_another_head_does_not_count_as_the_method_itself(monkeypatch, tmp_path):
    import choosing

    home = ROOT / "benchmarks" / "results" / "voc2012-lite0"
    runs = [json.loads(path.read_text()) for path in home.glob("an-*-0.json")]
    own = [run for run in runs if run["table"] == "Table A"]
    others = [run for run in runs if run["settings"].get("head")]
    (tmp_path / "voc2012-lite0").mkdir()
    for number, run in enumerate(own + others):
        (tmp_path / "voc2012-lite0" / f"{number}.json").write_text(json.dumps(run))
    monkeypatch.setattr(choosing, "RESULTS", tmp_path)
    assert len(own) == len(others) == 1
    assert choosing.voc_maps() == {"an": [own[0]["result"]["test_map"]]}
