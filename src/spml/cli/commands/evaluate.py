"""`spml eval`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from spml.cli import RunOptions, log

CHOOSES = "selection_score"  # the figure that chooses epochs; the estimate of mAP is another one


@dataclass(frozen=True, kw_only=True)
class Eval(RunOptions):
    """Evaluate a run's chosen model, and write eval-SPLIT.json.

    Example: spml eval runs/digits-gr-0 --split test
    """

    order: ClassVar[int] = 60

    split: Literal["val", "test"] | None = None
    """The split to evaluate on. Default: test if the data have it, else val."""

    def run(self) -> None:
        """Score the split, print the metrics and write them."""
        from spml.cli.output.progress import bar
        from spml.runs.run import Run
        from spml.use.evaluate import CHANGED, assess

        with bar("scoring") as advance:
            result = assess(
                self.run_folder,
                self.split,
                root=self.root,
                batch_size=self.batch_size,
                accept_changed_data=self.accept_changed_data,
                advance=advance,
            )
        split = result["split"]
        if self.split is None and split == "val":
            log("the data have no test split: these figures are of the validation rows")
        if count := result["changed_items"]:
            log(f"{count:,} items have other content than when the run was trained")
        elif result["data_changed"]:
            log(f"the data have {CHANGED}")
        if result["labels"] == "complete" and result["known"] < 1:
            log(f"{result['known']:.1%} of the labels are known: the figures use only these")
        for name, value in result["metrics"].items():
            note = "   chooses epochs; only for comparing models" if name == CHOOSES else ""
            print(f"{name:<24} {value:8.4f}{note}")
        if why := result.get("not_estimated"):
            log(f"no estimates of mAP, precision and recall: {why}")
        if estimates := result.get("estimates"):
            print("estimated from observed labels alone, with the range over resampled items:")
        for name, own in (estimates or {}).items():
            print(f"{name:<24} {own['value']:8.4f}   {own['low']:.4f} to {own['high']:.4f}")
        print(f"written to {Run(self.run_folder).evaluation(split)}")
