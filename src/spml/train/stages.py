"""Start a later stage of training from the best epoch so far."""

from __future__ import annotations

from typing import TYPE_CHECKING

from spml.model import load_model

if TYPE_CHECKING:
    from spml.train.loop import Training


def restart(training: Training) -> None:
    """Load the best model, and forget what optimisers and weight average have seen.

    The rates become those that the optimisers were built with. Nothing changes if no epoch could be
    selected yet.
    """
    best = training.progress.best
    if not best or training.progress.within:  # an interrupted epoch has restarted already
        return
    training.writer.wait()
    training.processes.wait()  # until rank 0 has written the model
    weights = load_model(training.run_folder.best)[0].state_dict()
    training.classifier.load_state_dict(weights)
    for optimizer in training.updater.optimizers:
        state = optimizer.state_dict()
        for group in state["param_groups"]:
            group["lr"] = group.pop("full_lr", group["lr"])
        optimizer.load_state_dict({**state, "state": {}})
    if training.average is not None:
        training.average.restart()
    training.display.line(f"next stage from epoch {best['epoch']}, the best so far")
