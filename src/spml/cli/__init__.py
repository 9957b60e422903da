"""The command line: one file per command, one dataclass per command, whose fields are its options."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from spml.errors import UserError


class Command(Protocol):
    """A dataclass whose fields are the command's options."""

    def run(self) -> None:
        """Do the work; raise UserError or OSError for what the user can mend."""


def _commands() -> dict[str, Callable[..., Command]]:
    from spml.cli.check import Check
    from spml.cli.demo import Demo
    from spml.cli.evaluate import Eval
    from spml.cli.predict import Predict
    from spml.cli.prepare import Prepare
    from spml.cli.report import Report
    from spml.cli.stats import Stats
    from spml.cli.train import Train

    return {
        "demo": Demo,
        "prepare": Prepare,
        "check": Check,
        "stats": Stats,
        "train": Train,
        "eval": Eval,
        "predict": Predict,
        "report": Report,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command: 0 when done, 2 on a user's mistake, 130 on interruption."""
    import tyro

    given = list(sys.argv[1:] if argv is None else argv)
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        command: Any = tyro.extras.subcommand_cli_from_dict(
            _commands(), args=given, prog="spml", description="Multi-label classifiers from one label per item."
        )
        command.run()
    except (UserError, OSError, ValueError) as error:
        say(_one_line(error))
        return 2
    except KeyboardInterrupt as error:
        print(f"\nspml: interrupted{'; ' + str(error) if str(error) else ''}", file=sys.stderr)
        return 130
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    return 0


def say(text: str) -> None:
    """A line for the user, beside the command's output."""
    print(f"spml: {text}", file=sys.stderr)


def entry() -> None:
    """The `spml` program."""
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code) if code == 130 else sys.exit(code)  # decoding threads must not hold up an interrupted command


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'file system'}: {error.strerror}"
    return " ".join(str(error).split())
