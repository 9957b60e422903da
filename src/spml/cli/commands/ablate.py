"""`spml ablate`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from spml.cli.table_command import TableCommand

if TYPE_CHECKING:
    from spml.bench.plan import Plan
    from spml.data import Experiment


@dataclass(frozen=True, kw_only=True)
class Ablate(TableCommand):
    """Take GR Loss apart, as Table 3 of its paper does: each of k̂, v and the robust losses there or not.

    A check mark is tuned on validation for its row (a grid, or --tune), seed 0; then fresh seeds are run.

    Example: spml ablate digits --seeds 3 --out ablate/digits
    """

    published: bool = False
    """Take the published values for every check mark, without trials."""

    def folder(self) -> Path:
        """Of runs, records and tables."""
        return self.out or Path("ablate") / Path(self.data).stem

    def plan(self, experiment: Experiment) -> Plan:
        """The rows of the paper's table, and one with k_hat of its Eq. (kx)."""
        from spml.bench.ablation import ablation_cases, observed_share
        from spml.bench.plan import Plan
        from spml.cli import say
        from spml.errors import UserError

        if self.published and self.tune:
            raise UserError("--published has no trials and --tune is about them; give one of them")
        search = (
            None
            if self.published
            else self._tune(experiment)
            if self.tune
            else self._grid(experiment)
        )
        seeds = tuple(range(1, self.seeds + 1)) if search else tuple(range(self.seeds))
        a = observed_share(experiment)
        if a is None and not self.quiet:
            say(
                "the row with k̂ of Eq. (kx) is left out: it needs complete labels, with more than one positive an image"
            )
        return Plan("ablation", self.data, ablation_cases(a), seeds, self._given()[0], search)
