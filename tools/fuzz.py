"""Coverage-guided fuzzing of the readers of `tests/fuzz/targets.py` (`make fuzz`).

Each target runs in its own process for an equal share of the time. An input that ends in anything
but a value or a UserError is saved, once for each kind of error and line of ours, and the search
continues. The report counts tries and finds.

    FUZZ_SECONDS=600 python tools/fuzz.py [TARGET ...]
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).parents[1]
CORPUS = ROOT / "tests" / "fuzz" / "corpus"
BUILD = ROOT / "build" / "fuzz"  # inputs found on the way, kept between calls, and the finds
LONGEST = 20  # seconds that an input may take
MOST_MB = 4096  # memory of a process
INSTRUMENTED = ["spml", "torch._weights_only_unpickler"]
TOKENS = ("image,label", "negative", "split", "train", "val", "test", "PK\\x03\\x04", "PAR1", '{"')


def main() -> int:
    """Fuzz the named targets, or all; print the report and return 1 if there are finds."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2], int(sys.argv[3]))
        return 0
    wanted = sys.argv[1:] or sorted(path.name for path in CORPUS.iterdir())
    seconds = max(1, int(os.environ.get("FUZZ_SECONDS", "600")) // len(wanted))
    finds = 0
    for name in wanted:
        command = [sys.executable, __file__, "--child", name, str(seconds)]
        (BUILD / name / "finds").mkdir(parents=True, exist_ok=True)
        with (BUILD / name / "log").open("wb") as log:
            code = subprocess.run(command, cwd=ROOT, stdout=log, stderr=log).returncode
        report = json.loads((BUILD / name / "report.json").read_text())
        ended = "" if code == 0 else f"; ended with code {code}, see {BUILD / name / 'log'}"
        lines = [f"{kind}: {what}" for kind, what in report["finds"].items()]
        lines += [f"the process {ended[2:]}"] if code else []
        finds += len(lines)
        seconds_spent, tries = report["seconds"], report["tries"]
        print(f"{name}: {tries:,} tries in {seconds_spent:.0f} s, {len(lines)} finds{ended}")
        for line in lines:
            print(f"  {line}")
    return int(finds > 0)


def child(name: str, seconds: int) -> None:
    """Fuzz one target in this process."""
    import atheris

    sys.path[:0] = [str(ROOT), str(ROOT / "src")]
    with atheris.instrument_imports(include=INSTRUMENTED):
        from tests.fuzz.targets import TARGETS
    target, place = TARGETS[name], BUILD / name
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    report = {"tries": 0, "seconds": 0.0, "finds": {}}
    began = written = time.monotonic()

    def write() -> None:
        report["seconds"] = time.monotonic() - began
        (place / "report.json").write_text(json.dumps(report, indent=2))

    def attempt(data: bytes) -> None:
        nonlocal written
        report["tries"] += 1
        try:
            target.attempt(data, folder)
        except Exception as error:
            if (kind := _kind(error)) not in report["finds"]:
                file = place / "finds" / f"{len(report['finds']):03}{target.suffix}"
                file.write_bytes(data)
                report["finds"][kind] = f"{file}: {' '.join(str(error).split())[:100]}"
                write()
        if time.monotonic() - written > 1:
            written = time.monotonic()
            write()

    write()
    (place / "tokens").write_text("".join(f'"{_quoted(token)}"\n' for token in TOKENS))
    (place / "corpus").mkdir(exist_ok=True)
    options = (f"-max_total_time={seconds}", f"-timeout={LONGEST}", f"-rss_limit_mb={MOST_MB}")
    files = (f"-artifact_prefix={place}/finds/", f"-dict={place}/tokens", "-max_len=20000")
    folders = (str(place / "corpus"), str(CORPUS / name))
    try:
        atheris.Setup([sys.argv[0], *options, *files, *folders], attempt)
        atheris.Fuzz()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _kind(error: Exception) -> str:
    """Return the type of an error and the last line of ours that it passed."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "/spml/" in frame.filename]
    where = f"{Path(own[-1].filename).name}:{own[-1].lineno}" if own else "the target"
    return f"{type(error).__name__} at {where}"


def _quoted(token: str) -> str:
    return token.replace('"', '\\"')


if __name__ == "__main__":
    sys.exit(main())
