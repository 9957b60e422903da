"""Count the functions, files and packages that a command passes through.

    python tools/walk.py            print the table of the four walks
    python tools/walk.py --write    replace the generated table in docs/architecture.md

A walk is the sequence of functions of `spml` in the order of their first call, in all threads of
the process. A switch is a step of that sequence to another file, or to another package.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import io
import os
import sys
import tempfile
import threading
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

SOURCE = Path(__file__).resolve().parents[1] / "src" / "spml"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "architecture.md"
BEGIN, END = "<!-- walks: begin (tools/walk.py --write) -->", "<!-- walks: end -->"
BEFORE = {
    "train": (458, 87, 91),
    "calibrate": (95, 22, 20),
    "predict": (68, 17, 14),
    "report": (205, 46, 31),
}
"""Functions, files and package switches of the release before the packages were rearranged."""


@dataclass(frozen=True)
class Walk:
    """Counts of the functions, files and packages of one command."""

    functions: int
    files: int
    package_switches: int
    file_switches: int
    names: tuple[str, ...]


class Recorder:
    """Records the functions of `spml` in the order of their first call."""

    def __init__(self, source: Path = SOURCE) -> None:
        self.prefix = f"{source}{os.sep}"
        self.seen: dict[Any, str] = {}

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        """Note a call; the signature is that of `sys.setprofile`."""
        code = frame.f_code
        if event != "call" or code in self.seen or not self._is_step(code):
            return
        if not self._importing(frame):
            self.seen[code] = code.co_filename[len(self.prefix) :]

    def _is_step(self, code: CodeType) -> bool:
        """Whether the code is a function of ours; module and class bodies are not."""
        function = code.co_flags & inspect.CO_NEWLOCALS and not code.co_name.startswith("<")
        ours = code.co_filename.startswith(self.prefix) and code.co_filename.endswith(".py")
        return bool(function and ours)

    def _importing(self, frame: FrameType) -> bool:
        """Whether one of our modules is being imported: its decorators are not steps."""
        caller = frame.f_back
        while caller is not None:
            code = caller.f_code
            if code.co_name == "<module>" and code.co_filename.startswith(self.prefix):
                return True
            caller = caller.f_back
        return False

    def walk(self) -> Walk:
        """Count the recorded functions, files and packages."""
        files = list(self.seen.values())
        packages = [Path(file).parts[0] for file in files]
        return Walk(
            functions=len(files),
            files=len(set(files)),
            package_switches=_switches(packages),
            file_switches=_switches(files),
            names=tuple(sorted(set(files))),
        )


def _switches(sequence: list[str]) -> int:
    return sum(1 for one, other in pairwise(sequence) if one != other)


def record(*arguments: str) -> Walk:
    """Run a command of `spml` in this process and record its walk."""
    from spml.cli import main

    recorder = Recorder()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            code = main(list(arguments))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    if code:
        raise SystemExit(
            f"spml {' '.join(arguments)} ended with exit code {code}:\n{printed.getvalue()}"
        )
    return recorder.walk()


def make_photos(folder: Path, count: int = 200) -> Path:
    """Write small random pictures and a CSV with one label each."""
    from PIL import Image

    random = np.random.default_rng(0)
    lines = ["image,label"]
    for number in range(count):
        name = f"{number:03d}.png"
        Image.fromarray(random.integers(0, 255, (32, 32, 3), dtype=np.uint8)).save(folder / name)
        lines.append(f"{name},{'abc'[number % 3]}")
    (folder / "photos.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / "photos.csv"


def walks() -> dict[str, Walk]:
    """Record the four walks on generated pictures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["SPML_CACHE"] = str(folder / "cache")
        table, run = make_photos(folder), str(folder / "run")
        # The method that 0.1.0 trained by default, so that the counts compare.
        small = ("--method", "gr", "--backbone", "tiny", "--size", "32", "--epochs", "2")
        return {
            "train": record("train", str(table), *small, "--out", run),
            "calibrate": record("calibrate", run),
            "predict": record("predict", run, str(table), "--out", str(folder / "tags.csv")),
            "report": record("report", run, "--out", str(folder / "page.html")),
        }


def table(recorded: dict[str, Walk]) -> str:
    """The walks as a Markdown table, next to the earlier figures."""
    lines = [
        "| walk | functions | files | package switches "
        "| before: functions | files | package switches |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, walk in recorded.items():
        functions, files, switches = BEFORE[name]
        counts = f"{walk.functions} | {walk.files} | {walk.package_switches}"
        lines.append(f"| `spml {name}` | {counts} | {functions} | {files} | {switches} |")
    return "\n".join(lines)


def main() -> None:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--write", action="store_true", help="replace the table in docs/architecture.md"
    )
    parser.add_argument("--files", metavar="WALK", help="list the files of one walk")
    options = parser.parse_args()
    recorded = walks()
    if options.files:
        print("\n".join(recorded[options.files].names))
        return
    text = table(recorded)
    print(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        head, rest = page.split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
