"""Help of the program and of its commands, from their dataclasses and the docstrings of fields.

A command with many flags shows the common ones; `--help-all` shows all of them, in groups.
"""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import tyro

HELP, HELP_ALL = ("-h", "--help"), "--help-all"
FEW = 20  # a command with at most this many flags shows all of them
SHORT = 12  # letters of choices that are listed beside their flag
WIDEST = 24  # letters of a flag that are beside its text; a longer one is above it
VALUES = {int: "N", float: "X", str: "TEXT", Path: "PATH"}
COMMON = "common"
GROUPS = {
    COMMON: (
        *("methods", "method", "set", "backbone", "weights", "size", "epochs", "batch_size", "lr"),
        *("seeds", "seed", "root", "labels", "out", "resume", "overwrite", "jobs"),
    ),
    "data": (
        *("image_column", "label_column", "label_separator", "features"),
        *("val", "test", "classes", "observe", "observe_seed", "split_seed", "selection"),
        *("cache", "cache_dir"),
    ),
    "optimisation": (
        *("head_lr", "optimizer", "schedule", "weight_decay", "linear_init", "linear_lr"),
        *("linear_batch_size", "flip", "crop", "frozen_norm", "ema", "patience_drop"),
    ),
    "speed": (*("precision", "accelerator", "devices", "nodes", "compile", "eval_batch_size"),),
    "advanced": (
        *("accept_changed_data", "decode_memory", "max_pixels"),
        *("race_budget", "head", "on_nan", "checkpoint_minutes", "logger", "tensorboard"),
        *("against", "resamples", "trials", "rates", "from_", "format", "verify"),
    ),
}
RARE = [title for title in GROUPS if title != COMMON]  # only --help-all shows them


class Flag(NamedTuple):
    """A flag or a positional argument; the label is the flag with its value, as it is typed."""

    name: str
    label: str
    sentences: list[str]
    positional: bool
    required: bool

    @property
    def flags(self) -> list[str]:
        """The words that set it, as --size."""
        return re.findall(r"--[\w-]+", self.label.replace("[no-]", ""))


def overview(commands: Mapping[str, type[Any]]) -> str:
    """Return the help of the program: one line per command."""
    lines = ["usage: spml COMMAND ...", "", "Multi-label classifiers from one label per item.", ""]
    for name, kind in commands.items():
        lines += _beside(f"  {name}", [(kind.__doc__ or "").partition("\n")[0]], 13)
    lines += ["", "Flags and an example: spml COMMAND --help. Version: spml --version."]
    lines += ["Shell completion: spml --tyro-print-completion bash (or zsh, fish, tcsh)."]
    return "\n".join(lines)


def command_help(name: str, kind: type[Any], *, whole: bool) -> str:
    """Return the help of a command: all flags in full, or the common ones on a line each."""
    flags = list(flags_of(kind))
    words = [flag.label for flag in flags if flag.positional or flag.required]
    words += ["[FLAG ...]"] if len(words) < len(flags) else []
    lines = [" ".join(["usage: spml", name, *words]), ""]
    for paragraph in inspect.cleandoc(kind.__doc__ or "").split("\n\n"):
        lines += [*textwrap.wrap(paragraph, _width(), break_on_hyphens=False), ""]

    groups = {"arguments": [flag for flag in flags if flag.positional]}
    groups |= _groups([flag for flag in flags if not flag.positional])
    shown = [flag for title in groups if whole or title not in RARE for flag in groups[title]]
    column = min(max((len(flag.label) for flag in shown), default=0), WIDEST) + 4
    for title, members in groups.items():
        if members and members[0] in shown:
            lines.append(f"{title}:")
            lines += [line for flag in members for line in _described(flag, column, whole=whole)]
            lines.append("")
    if not whole and flags:
        rare = f", and {len(flags) - len(shown)} more flags ({', '.join(RARE)})"
        lines.append(f"--help-all: full texts{rare if len(shown) < len(flags) else ''}")
    return "\n".join(lines).rstrip()


def _described(flag: Flag, column: int, *, whole: bool) -> list[str]:
    """Return a flag's lines; in the short help the first sentence, with a default that fits."""
    if whole or flag.positional:
        return _beside(f"  {flag.label}", flag.sentences, column)
    space = _width() - column
    text, *others = (sentence.removesuffix(".") for sentence in flag.sentences)
    if len(text) > space:
        text = text.partition("; ")[0]
    default = next((f". {one}" for one in others if one.startswith("Default:")), "")
    if len(text + default) <= space:
        text += default
    return [f"  {flag.label}".ljust(column) + textwrap.shorten(text, space, placeholder=" ...")]


def _beside(head: str, sentences: list[str], column: int) -> list[str]:
    """Return a text, wrapped, beside its head or below a head that is too long."""
    wrapped = textwrap.wrap(" ".join(sentences), _width() - column, break_on_hyphens=False)
    if len(head) <= column - 2:
        return [head.ljust(column) + wrapped[0], *(" " * column + line for line in wrapped[1:])]
    return [head, *(" " * column + line for line in wrapped)]


def _width() -> int:
    return min(shutil.get_terminal_size().columns, 100)


def _groups(flags: list[Flag]) -> dict[str, list[Flag]]:
    """Return the flags by group, each group in its order; flags without a group are common."""
    if len(flags) <= FEW:
        return {"options": flags}
    by_name = {flag.name: flag for flag in flags}
    named = {name for names in GROUPS.values() for name in names}
    groups = {
        title: [by_name[name] for name in names if name in by_name]
        for title, names in GROUPS.items()
    }
    groups[COMMON] += [flag for flag in flags if flag.name not in named]
    return groups


def flags_of(kind: type[Any]) -> Iterator[Flag]:
    """Yield positional arguments, the command's own flags, and those that it inherits."""
    hints = get_type_hints(kind, include_extras=True)
    marks = {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}
    own = [name for base in kind.__mro__ for name in vars(base).get("__annotations__", ())]
    texts = _docstrings(kind)

    def place(item: Field[Any]) -> int:
        return -1 if tyro.conf.Positional in marks[item.name] else own.index(item.name)

    for item in sorted(fields(kind), key=place):
        hint = hints[item.name]
        if tyro.conf.Suppress in marks[item.name]:
            continue
        positional = tyro.conf.Positional in marks[item.name]
        label = _label(item, hint, positional=positional)
        sentences = _sentences(texts[item.name]) + _default(item, texts[item.name])
        if label.endswith(" CHOICE"):
            sentences.append(f"Choices: {', '.join(_choices(hint))}.")
        required = item.default is MISSING and item.default_factory is MISSING
        yield Flag(item.name, label, sentences, positional, required)


def _label(item: Field[Any], hint: Any, *, positional: bool) -> str:
    """Return a flag with its value."""
    settings = [mark for mark in getattr(hint, "__metadata__", ()) if hasattr(mark, "metavar")]
    metavar = next((mark.metavar for mark in settings if mark.metavar), None)
    name = next((mark.name for mark in settings if mark.name), item.name).replace("_", "-")
    if positional:
        return metavar or "|".join(_choices(hint)) or item.name.upper()
    aliases = [alias for mark in settings for alias in mark.aliases or ()]
    flag = ", ".join([*aliases, f"--[no-]{name}" if item.default is True else f"--{name}"])
    return flag if isinstance(item.default, bool) else f"{flag} {metavar or _value(hint)}"


def _value(hint: Any) -> str:
    """Return the form of a flag's value."""
    if choices := _choices(hint):
        joined = "|".join(choices)
        return joined if len(joined) <= SHORT else "CHOICE"
    types = list(_types(hint))
    several = any(get_origin(kind) is tuple for kind in types)
    value = next(VALUES[kind] for kind in types if kind in VALUES)
    return f"{value}..." if several else value


def _choices(hint: Any) -> list[str]:
    """Return the values that a flag takes, if they are few."""
    types = list(_types(hint))
    if bool in types:
        return ["True", "False"]
    return [str(value) for kind in types if get_origin(kind) is Literal for value in get_args(kind)]


def _types(hint: Any) -> Iterator[Any]:
    """Yield a type and the types inside it."""
    yield hint
    if get_origin(hint) is not Literal:
        for inner in get_args(hint):
            yield from _types(inner)


def _default(item: Field[Any], text: str) -> list[str]:
    """Return the default as a sentence, if there is one that the text does not name."""
    value = item.default
    if value in (MISSING, None, "", ()) or isinstance(value, bool) or "Default:" in text:
        return []
    return [f"Default: {' '.join(value) if isinstance(value, tuple) else value}."]


def _sentences(text: str) -> list[str]:
    """Return the sentences of a text."""
    return re.split(r"(?<=\.) (?=[A-Z`])", " ".join(text.split()))


def _docstrings(kind: type[Any]) -> dict[str, str]:
    """Return the docstrings under the fields of a class and of its bases."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        for statement, after in zip(tree.body, tree.body[1:], strict=False):
            if isinstance(statement, ast.AnnAssign) and isinstance(after, ast.Expr):
                assert isinstance(statement.target, ast.Name)
                texts[statement.target.id] = str(ast.literal_eval(after.value))
    return texts
