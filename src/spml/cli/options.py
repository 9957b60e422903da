"""Options that commands share: the source of the data, and --set for a method's options."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from spml.errors import UserError

if TYPE_CHECKING:
    from spml.data import Experiment

ARRAYS = ("table", "estimated", "x")  # method options that take whole arrays


@dataclass(frozen=True, kw_only=True)
class DataOptions:
    """The source of the data and the meaning of its labels."""

    root: Path | None = None
    """Folder of the data set's files, or of the images that a CSV names."""
    labels: Literal["observed", "complete"] | None = None
    """Meaning of an absent label: unknown (observed) or negative (complete). Default: complete for
    benchmarks and digits, else observed."""
    val: Path | None = None
    """File of the validation rows. Default: rows of DATA marked val, else a fifth of its rows."""
    test: Path | None = None
    """File of the test rows. Default: rows of DATA marked test."""
    observe: str = "uniform"
    """How single positives are drawn from complete labels: uniform (the protocol), frequency, size,
    file:PATH."""
    classes: str | None = None
    """File with one class name a line, or names joined by commas: fixes the classes and their
    order."""

    def loader(self, data: str, observe_seed: int, split_seed: int) -> partial[Experiment]:
        """Return `spml.data.load` with these options, for another process to call."""
        from spml.data import load

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
        )

    def load(self, data: str, observe_seed: int, split_seed: int) -> Experiment:
        """Load the data for training."""
        return self.loader(data, observe_seed, split_seed)()

    def sources(self) -> dict[str, str | None]:
        """Return the entries of config.json from which `spml eval` loads the data again."""
        paths = {"root": self.root, "val": self.val, "test": self.test}
        return {
            **{name: None if path is None else str(path) for name, path in paths.items()},
            "observe": self.observe,
        }


def parse_options(method: str, pairs: Sequence[str]) -> dict[str, Any]:
    """Parse NAME=VALUE pairs: numbers, true, false, none, a,b for a pair or list, else text."""
    from spml import losses

    known = {option.name: option for option in losses.options(method)}
    values = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals:
            raise UserError(
                f"--set {pair}: write NAME=VALUE, or --set help to list the options of {method}"
            )
        name, text = name.strip(), text.strip()
        if name in ARRAYS and method in losses.names():
            raise UserError(
                f"--set {name}: this option takes an array and is only available in Python code"
            )
        choices = get_args(known[name].type) if name in known else ()
        values[name] = text if text in choices else _parse(text)
    losses.check_options(method, values)
    return values


def _parse(text: str) -> Any:
    if text.lower() in ("none", "true", "false"):
        return {"none": None, "true": True, "false": False}[text.lower()]
    for candidate in (text, f"[{text.strip('()')}]"):
        try:
            return json.loads(candidate)
        except json.JSONDecodeError:
            try:
                return float(candidate)  # forms that JSON lacks, such as .5
            except ValueError:
                continue
    parts = text.strip("()[]").split(",")
    try:
        return [float(part) for part in parts] if len(parts) > 1 else text
    except ValueError:
        return text


def option_text(value: Any) -> str:
    """Format the value of a method option as --set reads it."""
    if isinstance(value, (list, tuple)):
        return ",".join(option_text(part) for part in value)
    return value if isinstance(value, str) else json.dumps(value)


def print_options(method: str) -> None:
    """Print the options of a method with defaults and help."""
    from rich.console import Console
    from rich.table import Table

    from spml import losses
    from spml.losses import summary

    table = Table(
        "option",
        "default",
        "description",
        title=f"{method}: {summary(method)}",
        title_justify="left",
    )
    for option in losses.options(method):
        table.add_row(option.name, str(option.default), option.help)
    Console().print(table)
