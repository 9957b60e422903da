"""The command line. Each module of `spml.cli.commands` holds one command: a dataclass of options.

A new command is one new module there. `spml` finds it by itself.
"""

from __future__ import annotations

import difflib
import io
import os
import pkgutil
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Protocol

import tyro

from spml.errors import DataError, UserError
from spml.machine import out_of_memory, started_first
from spml.runs.settings import FORMER_SWITCHES, REMOVED_FLAGS

if TYPE_CHECKING:
    from spml.data import Experiment
    from spml.data.readers.columns import Columns

BROKEN_PIPE = 141  # exit code of shells for a program whose output is no longer read


class Command(Protocol):
    """A dataclass whose fields are the options of the command.

    Attributes:
        order: position in the help; commands with equal numbers are sorted by name.
    """

    order: ClassVar[int]

    def run(self) -> None:
        """Run the command; raise UserError or OSError for problems that the user can solve."""


def find_commands() -> dict[str, type[Command]]:
    """Return the command classes by name, in the order of the help."""
    from spml.cli import commands as package

    kinds: list[type[Command]] = []
    for info in pkgutil.iter_modules(package.__path__):
        module = import_module(f"{package.__name__}.{info.name}")
        own = [kind for kind in vars(module).values() if isinstance(kind, type)]
        kinds += [one for one in own if one.__module__ == module.__name__ and hasattr(one, "run")]
    kinds.sort(key=lambda kind: (kind.order, kind.__name__))
    return {kind.__name__.lower(): kind for kind in kinds}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 2 after a user's mistake, or 130 after an interruption."""
    words = list(sys.argv[1:] if argv is None else argv)
    if words == ["--version"]:
        print(f"spml {version('spml')}")
        return 0
    try:
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        command = _parse_command(_without_removed(words))
        if isinstance(command, DecodeOptions):
            command.limit_decoding()
        if command is not None:
            command.run()
    except BrokenPipeError:
        return _discard_output()
    except (UserError, OSError, ValueError) as error:
        log(_one_line(error))
        return 2
    except KeyboardInterrupt as error:
        if started_first():  # of several processes, only the first reports the interruption
            print(f"\nspml: interrupted{'; ' + str(error) if str(error) else ''}", file=sys.stderr)
        return 130
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 2
    except Exception as error:
        if "SPML_TRACEBACK" in os.environ:
            raise
        if out_of_memory(error):
            log("out of memory; give a smaller --batch-size, or close other programs")
            return 2
        kind = type(error).__name__
        log(f"unexpected {kind}: {_one_line(error)} (SPML_TRACEBACK=1 shows the traceback)")
        return 1
    return 0


def _discard_output() -> int:
    """Discard further output, because its reader (such as head) has ended; return the exit code."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _parse_command(argv: Sequence[str]) -> Command | None:
    """Return the command with its options; None if its help was printed instead."""
    from spml.cli.help import HELP, HELP_ALL, command_help, overview

    known = find_commands()
    if any(one.startswith("--tyro-") for one in argv):  # completion of a shell
        _print_completion({**known}, argv)
        return None
    if not argv:
        print(overview(known), file=sys.stderr)
        raise SystemExit(2)
    if argv[0] in (*HELP, HELP_ALL):
        print(overview(known))
        return None
    name, *options = argv
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; {near[0]!r}?" if near else "."
        raise UserError(f"no command {name!r}{hint} Commands: {', '.join(known)}")
    if any(word in (*HELP, HELP_ALL) for word in options):
        print(command_help(name, known[name], whole=HELP_ALL in options))
        return None
    shown = io.StringIO()
    try:
        with redirect_stderr(shown):
            return tyro.cli(known[name], args=options, prog=f"spml {name}")
    except SystemExit as stop:
        from spml.cli.mistakes import mistake

        raise mistake(name, known[name], options, shown.getvalue()) from stop


def _print_completion(commands: dict[str, Callable[..., Any]], argv: Sequence[str]) -> None:
    """Print a shell's script; a description of two lines would be two completions in it."""
    shown = io.StringIO()
    with redirect_stdout(shown), suppress(SystemExit):
        tyro.extras.subcommand_cli_from_dict(commands, args=argv, prog="spml")
    for line in shown.getvalue().splitlines():
        print(line.replace("\\n", " ") if line.startswith("COMPLETION_SPEC") else line)


def _without_removed(argv: Sequence[str]) -> list[str]:
    """Leave out flags that were removed and complete switches, so that recorded commands run."""
    for flag in sorted(set(argv) & set(REMOVED_FLAGS)):
        log(f"{flag} has no effect any more; leave it out")
    words: list[str] = []
    for word, following in zip(argv, [*argv, ""][1:], strict=True):
        if word in FORMER_SWITCHES and following not in ("True", "False"):
            words += FORMER_SWITCHES[word]
        elif word not in REMOVED_FLAGS:
            words.append(word)
    return words


def log(text: str) -> None:
    """Print a line for the user to standard error."""
    print(f"spml: {_plain(text)}", file=sys.stderr)


class LeftOut:
    """Reports inputs that were left out, and counts them."""

    count = 0

    def __call__(self, error: Exception) -> None:
        """Report an input that could not be read."""
        self.count += 1
        log(f"left out: {error}")

    def check(self, what: str = "") -> None:
        """Raise DataError if an input was left out."""
        if self.count:
            raise DataError(f"{self.count:,} {what}could not be read, named above")


def notes_on(experiment: Experiment, *, own_names: bool) -> list[str]:
    """Return what a user should know of their table before training; class names of the table."""
    from spml.data.names import separator_note
    from spml.data.readers.columns import listed
    from spml.data.readers.read import is_named

    notes = []
    if own_names and not is_named(experiment.name):
        notes.append(separator_note(experiment.classes))
    if names := experiment.observed.feature_names:
        notes.append(f"{len(names):,} columns of features: {listed(names)}")
    return [note for note in notes if note]


def _plain(text: str) -> str:
    """Escape characters of file names that would break the line."""
    return "".join(sign if sign.isprintable() else ascii(sign)[1:-1] for sign in text)


def entry() -> None:
    """Run the `spml` program."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with suppress(OSError):  # the stream's file was replaced by a pipe
                # file names may hold bytes that this encoding cannot show
                stream.reconfigure(errors="backslashreplace")
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        log("the current folder was removed; change to another")
        sys.exit(2)
    if here not in sys.path:
        sys.path.insert(0, here)  # so that --method mine:loss finds mine.py
    code = main()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _discard_output()
    sys.stderr.flush()
    if code == 130:
        os._exit(code)  # without waiting for decoding threads
    sys.exit(code)


def _one_line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename or 'file system'}: {error.strerror}"
    return " ".join(str(error).split())


@dataclass(frozen=True, kw_only=True)
class DecodeOptions:
    """Limits of a command that decodes pictures."""

    decode_memory: float | None = None
    """Gigabytes that decoding pictures may take at once. Default: a quarter of the free memory."""
    max_pixels: float | None = None
    """Largest picture to decode, width times height. Default: 178 million, the most."""

    def limit_decoding(self) -> None:
        """Set the limits of this process and of its child processes."""
        if self.decode_memory is not None or self.max_pixels is not None:
            from spml.data.images.decode import set_limits

            set_limits(self.decode_memory, self.max_pixels)


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """The stored model that a command uses."""

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A finished run, a folder with model.safetensors and model.json, or hub:OWNER/NAME, a model
    of the Hugging Face hub."""

    def model(self) -> Path:
        """Return the folder of the model; warn if it belongs to an unfinished run."""
        from spml.runs.names import RESULT
        from spml.runs.run import Run
        from spml.use.hub import local_folder

        folder = local_folder(self.run_folder)
        run = Run(folder)
        if run.exists and run.model.is_dir() and not run.finished:
            log(f"{folder} is not finished (no {RESULT}): this is its best model so far")
        return folder


@dataclass(frozen=True, kw_only=True)
class RunOptions(DecodeOptions):
    """The run that a command reads, and how it scores the run's data."""

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A finished run."""
    root: Path | None = None
    """Folder of the data's files. Default: their location at training."""
    batch_size: int = 64
    """Items per batch, if scores must be computed."""
    accept_changed_data: bool = False
    """Use items although they have changed since training."""


@dataclass(frozen=True, kw_only=True)
class TableOptions(DecodeOptions):
    """The source of the data and the meaning of its labels."""

    root: Path | None = None
    """Folder of a data set's files, or of a table's images."""
    labels: Literal["observed", "complete"] | None = None
    """Absent labels: unknown (observed) or negative (complete). Default: complete for benchmarks
    and digits, else observed."""
    val: Path | None = None
    """File of the validation rows. Default: rows of DATA marked val, else a fifth of its rows."""
    test: Path | None = None
    """File of the test rows. Default: rows of DATA marked test."""
    classes: str | None = None
    """Class names in order. A file with one name a line, or names joined by commas."""
    image_column: str | None = None
    """Column of a table's paths, or names of rows. Default: image."""
    label_column: str | None = None
    """Column of a table's class names. Default: label."""
    label_separator: Annotated[str, tyro.conf.arg(metavar="S")] = "|"
    """Sign between two class names in a cell."""
    features: str | None = None
    """Columns of numbers in a CSV, to learn from. Names or patterns, joined by commas."""

    def columns(self) -> Columns:
        """Return the names of the columns of a table."""
        from spml.data.readers.columns import Columns

        return Columns(self.image_column, self.label_column, self.label_separator, self.features)


@dataclass(frozen=True, kw_only=True)
class DataOptions(TableOptions):
    """The source of the data, and how single positives are drawn."""

    observe: str = "uniform"
    """How single positives are drawn from complete labels. One of uniform (the protocol),
    frequency, size and file:PATH, with options as uniform:positives=2."""

    def loader(self, data: str, observe_seed: int, split_seed: int) -> partial[Experiment]:
        """Return `spml.data.load` with these options, for another process to call."""
        from spml.data.experiment import load

        return partial(
            load,
            source=data,
            root=self.root,
            labels=self.labels,
            observe_seed=observe_seed,
            split_seed=split_seed,
            classes=self.classes,
            observe=self.observe,
            val=self.val,
            test=self.test,
            columns=self.columns(),
        )

    def load(self, data: str, observe_seed: int, split_seed: int) -> Experiment:
        """Load the data for training."""
        return self.loader(data, observe_seed, split_seed)()

    def sources(self) -> dict[str, Any]:
        """Return the entries of config.json from which `spml eval` loads the data again."""
        paths = {"root": self.root, "val": self.val, "test": self.test}
        named = self.columns().changed()
        return {
            **{name: None if path is None else str(path) for name, path in paths.items()},
            "observe": self.observe,
            **({"columns": named} if named else {}),
        }
