"""`spml ablate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from spml.cli import log
from spml.cli.many_runs import TableOfRuns
from spml.errors import UserError

if TYPE_CHECKING:
    from spml.bench.plan import Plan
    from spml.data import Experiment


@dataclass(frozen=True, kw_only=True)
class Ablate(TableOfRuns):
    """Measure the parts of GR Loss, on or off: k̂, v and robust losses.

    This is Table 3 of its paper.

    Parts that are on are tuned on validation for their row (a grid, or --tune) with seed 0; then
    the row is trained with new seeds.

    Example: spml ablate digits --seeds 3 --out ablate/digits
    """

    order: ClassVar[int] = 150

    published: bool = False
    """Use the published values of every part, without trials."""

    def plan(self, experiment: Experiment) -> Plan:
        """Return the rows of the paper's table, and one with k_hat of its Eq. (kx)."""
        from spml.bench.rows import ablation_cases, observed_share

        if self.published and self.tune:
            raise UserError("--published runs no trials and --tune does; give one of them")
        a = observed_share(experiment)
        if a is None and not self.quiet:
            log(
                "the row with k̂ of Eq. (kx) is left out: it needs complete labels with more than "
                "one positive per image"
            )
        return self._plan("ablation", ablation_cases(a), experiment, grid=not self.published)
