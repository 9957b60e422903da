"""Test spml in fresh environments: Python versions, oldest and newest dependencies, no extras.

    python tools/test_matrix.py                    every environment that this machine can make
    python tools/test_matrix.py --list             their names
    python tools/test_matrix.py plain-3.11 ...     only these

`newest-X` and `oldest-X` install every extra and run all tests; the oldest versions are the lower
bounds in pyproject.toml. `plain-X` installs the package without extras, outside of the sources, and
runs a few commands. A Python that does not run is skipped. Downloads several GB.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
COMMANDS = (
    "--help",
    "methods",
    "train digits --method gr --epochs 1 --out run",
    "eval run",
    "report run --out report.html",
)


def environments() -> list[str]:
    """Names of the environments for the Pythons on PATH."""
    present = [version for version in PYTHONS if runs(f"python{version}")]
    names = [f"{kind}-{version}" for version in present for kind in ("plain", "newest")]
    return names + [f"oldest-{version}" for version in present[:1]]


def runs(python: str) -> bool:
    """Whether this Python is on PATH and starts; a shim of pyenv may not."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def lower_bounds() -> list[str]:
    """The dependencies of pyproject.toml at their lower bounds."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    (own,) = [each for each in extras["dev"] if each.startswith("spml[")]
    wanted = list(project["dependencies"])
    for name in own.removeprefix("spml[").removesuffix("]").split(","):
        wanted += extras[name]
    return [re.sub(r"\[.*?\]", "", requirement).replace(">=", "==") for requirement in wanted]


def test(name: str, folder: Path) -> bool:
    """Make one environment and run its tests; whether all passed."""
    kind, version = name.split("-")
    binaries = folder / name / "bin"
    python = binaries / "python"
    run([f"python{version}", "-m", "venv", str(folder / name)], folder)
    if kind == "plain":
        install = [str(ROOT)]
    else:
        install = [f"{ROOT}[dev]", *(lower_bounds() if kind == "oldest" else [])]
    if not run([str(python), "-m", "pip", "install", "--quiet", *install], folder):
        return False
    if kind == "plain":
        return all(run([str(binaries / "spml"), *line.split()], folder) for line in COMMANDS)
    return run([str(python), "-m", "pytest", "-n", "auto", "--dist", "loadfile"], ROOT)


def run(command: list[str], folder: Path) -> bool:
    """Run a command in a folder; whether it succeeded."""
    print("+", " ".join(command), flush=True)
    settings = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, env=settings, check=False).returncode == 0


def main() -> int:
    """Test the named environments; 1 if any failed."""
    parser = argparse.ArgumentParser(description="Test spml in fresh environments.")
    parser.add_argument("names", nargs="*", help="environments; all by default")
    parser.add_argument("--list", action="store_true", help="print their names")
    options = parser.parse_args()
    if options.list:
        print("\n".join(environments()))
        return 0
    unknown = set(options.names) - set(environments())
    if unknown:
        parser.error(f"no such environment: {', '.join(sorted(unknown))}; see --list")
    results = {}
    for name in options.names or environments():
        with tempfile.TemporaryDirectory() as folder:
            results[name] = test(name, Path(folder))
    for name, passed in results.items():
        print(f"{name}: {'passed' if passed else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
