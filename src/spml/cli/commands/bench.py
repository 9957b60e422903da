"""`spml bench`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import tyro

from spml.cli.many_runs import TableOfRuns
from spml.cli.set_options import parse_options
from spml.errors import UserError

if TYPE_CHECKING:
    from spml.bench.plan import Plan
    from spml.data import Experiment

ALL = "all"  # as a name of --methods
UPPER_BOUND = "full"  # trains on complete labels


@dataclass(frozen=True, kw_only=True)
class Bench(TableOfRuns):
    """Train many methods with many seeds, and compare them in one table.

    Runs are independent: stop at any time and run the same command to resume, also on several
    machines at once.

    Example: spml bench digits --methods an,em,gr,full --seeds 3 --out bench/digits --jobs 2
    """

    order: ClassVar[int] = 140

    methods: tuple[str, ...] = ()
    """Names of methods, separated by commas or spaces, or all. Default: those of the GR Loss
    paper's comparison."""
    grid: bool = False
    """Search settings in a grid, on validation with seed 0.
    The grid has several learning rates, and the published options or the method's alternative.
    Final runs have new seeds."""
    set: Annotated[list[str], tyro.conf.UseAppendAction] = field(default_factory=list)
    """Option of a method as METHOD.NAME=VALUE. For example hill.variant=gr."""

    def plan(self, experiment: Experiment) -> Plan:
        """Return a row for each method."""
        from spml.bench.rows import method_cases, paper_methods

        names = [name for word in self.methods for name in word.split(",") if name]
        names = [one for name in names or paper_methods() for one in _expanded(name, experiment)]
        twice = [name for name in dict.fromkeys(names) if names.count(name) > 1]
        if twice:
            raise UserError(f"--methods names {', '.join(twice)} twice")
        if self.grid and self.tune:
            raise UserError("--grid and --tune both choose settings; give one of them")
        cases = method_cases(names, self._options(names, experiment))
        return self._plan("bench", cases, experiment, grid=self.grid)

    def _options(self, names: list[str], experiment: Experiment) -> dict[str, dict[str, Any]]:
        """Return the options of each method from --set; wrong ones are an error before any run."""
        from spml.runs.settings import AUTO
        from spml.train.fitting import make_method
        from spml.train.resolve import method_options

        pairs: dict[str, list[str]] = {}
        for word in self.set:
            method = word.partition("=")[0].rpartition(".")[0]
            if method not in names:
                raise UserError(
                    f"--set {word}: write METHOD.NAME=VALUE with one of {', '.join(names)}"
                )
            if method == AUTO:
                raise UserError(f"--set {word}: auto sets the options of its candidates")
            pairs.setdefault(method, []).append(word[len(method) + 1 :])
        options = {method: parse_options(method, words) for method, words in pairs.items()}
        for method, own in options.items():
            make_method(experiment, method, method_options(method, experiment, own))
        return options


def _expanded(name: str, experiment: Experiment) -> list[str]:
    """Return the methods that a word of --methods stands for, as far as the data have labels."""
    from spml import losses

    if name != ALL:
        return [name]
    return [one for one in losses.names() if one != UPPER_BOUND or experiment.complete is not None]
