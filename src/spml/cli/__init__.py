"""The command line: one file per command, one dataclass per command, whose fields are its options."""

from __future__ import annotations

import difflib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

from spml.errors import UserError
from spml.machine import started_first

ENOUGH = 141  # exit code of a command whose output nobody reads on, as shells have it


class Command(Protocol):
    """A dataclass whose fields are the command's options."""

    def run(self) -> None:
        """Do the work; raise UserError or OSError for what the user can mend."""


def _commands() -> dict[str, Callable[..., Command]]:
    from spml.cli.commands.ablate import Ablate
    from spml.cli.commands.bench import Bench
    from spml.cli.commands.calibrate import Calibrate
    from spml.cli.commands.check import Check
    from spml.cli.commands.demo import Demo
    from spml.cli.commands.evaluate import Eval
    from spml.cli.commands.explain import Explain
    from spml.cli.commands.export import Export
    from spml.cli.commands.figures import Figures
    from spml.cli.commands.predict import Predict
    from spml.cli.commands.prepare import Prepare
    from spml.cli.commands.report import Report
    from spml.cli.commands.review import Review
    from spml.cli.commands.serve import Serve
    from spml.cli.commands.stats import Stats
    from spml.cli.commands.train import Train

    return {
        "demo": Demo,
        "prepare": Prepare,
        "check": Check,
        "stats": Stats,
        "train": Train,
        "eval": Eval,
        "calibrate": Calibrate,
        "report": Report,
        "predict": Predict,
        "explain": Explain,
        "review": Review,
        "export": Export,
        "serve": Serve,
        "bench": Bench,
        "ablate": Ablate,
        "figures": Figures,
    }


def command_names() -> list[str]:
    """In the order in which help lists them."""
    return list(_commands())


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command: 0 when done, 2 on a user's mistake, 130 on interruption."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given == ["--version"]:
        print(f"spml {version('spml')}")
        return 0
    try:
        import tyro

        signal.signal(signal.SIGTERM, _interrupt)
        _check_command(given)
        command: Any = tyro.extras.subcommand_cli_from_dict(
            _commands(),
            args=given,
            prog="spml",
            description="Multi-label classifiers from one label per item.",
        )
        command.run()
    except BrokenPipeError:
        return _enough()
    except (UserError, OSError, ValueError) as error:
        say(_one_line(error))
        return 2
    except KeyboardInterrupt as error:
        if started_first():  # of a run's processes
            print(f"\nspml: interrupted{'; ' + str(error) if str(error) else ''}", file=sys.stderr)
        return 130
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except Exception as error:
        if "SPML_TRACEBACK" in os.environ:
            raise
        say(f"unexpected {type(error).__name__}: {_one_line(error)} (SPML_TRACEBACK=1 shows where)")
        return 1
    return 0


def _enough() -> int:
    """The exit code where the reader of what is printed has had enough, as head has; the rest goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return ENOUGH


def _check_command(given: Sequence[str]) -> None:
    if given and not given[0].startswith("-") and given[0] not in (known := _commands()):
        near = (
            "".join(f"; {match!r}?" for match in difflib.get_close_matches(given[0], known, n=1))
            or "."
        )
        raise UserError(f"no command {given[0]!r}{near} There are: {', '.join(known)}")


def say(text: str) -> None:
    """A line for the user, beside the command's output."""
    print(f"spml: {_plain(text)}", file=sys.stderr)


class LeftOut:
    """Says what was left out, and counts it."""

    count = 0

    def __call__(self, error: Exception) -> None:
        """For what could not be read."""
        self.count += 1
        say(f"left out: {error}")


def note_unfinished(run: Path) -> None:
    """Say so where a model is that of a run which has not ended: the best so far."""
    from spml.runs.names import RESULT
    from spml.runs.run import Run

    stored = Run(run)
    if stored.exists and stored.model.is_dir() and not stored.finished:
        say(f"{run} is not finished (no {RESULT}): this is its best model so far")


def _plain(text: str) -> str:
    """The same on one line, whatever the names of files in it hold."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def entry() -> None:
    """The `spml` program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # where its file was exchanged for a pipe
                stream.reconfigure(
                    errors="backslashreplace"
                )  # names of files that are no text in this encoding
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        say("the folder that you are in was removed; change to another")
        sys.exit(2)
    if here not in sys.path:
        sys.path.insert(0, here)  # so that --method mine:loss finds mine.py
    code = main()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _enough()
    sys.stderr.flush()
    os._exit(code) if code == 130 else sys.exit(
        code
    )  # decoding threads must not hold up an interrupted command


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'file system'}: {error.strerror}"
    return " ".join(str(error).split())
