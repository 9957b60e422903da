"""How a run starts and ends: settings are decided and tried, processes come together, and errors are put into words."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spml.data import Experiment
from spml.data.images.cache import Cache
from spml.errors import Interruption, UserError
from spml.keyed import key
from spml.machine import started_first
from spml.runs import record
from spml.runs.folder import RunFolder
from spml.runs.run import Run
from spml.runs.settings import Settings, method_options, resolve
from spml.train import randomness
from spml.train.checks import memory_note, try_alone, try_method, try_model, warmup_note
from spml.train.device import compile_early, make_fabric, smallest_share
from spml.train.display import Display
from spml.train.guard import out_of_memory
from spml.train.loop import Training
from spml.train.processes import Processes
from spml.train.setup import example, make_method, make_model
from spml.train.supervisor import Together, following
from spml.train.tensorboard import Board, check_board


def fit(
    experiment: Experiment,
    settings: Settings,
    out: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    extra_config: Mapping[str, Any] | None = None,
    cache: Cache | None = None,
    tensorboard: bool = False,
) -> dict[str, Any]:
    """Train, choose the epoch by the declared labels, evaluate it once on test, and write the run folder.

    Args:
        experiment: the data, from `spml.data.load`; without validation rows the last epoch is taken.
        settings: how to train.
        out: the run folder.
        options: of the method; what is not given has its published or default value.
        resume: go on with the run that is in `out`, if one is.
        overwrite: replace the run that is in `out`.
        quiet: show nothing.
        extra_config: more to keep in config.json, such as the command.
        cache: of decoded pictures, where several runs on the same data share one; otherwise the settings' own.
        tensorboard: write the history for TensorBoard too.

    Returns:
        What result.json holds.
    """
    if tensorboard:
        check_board()
    settings = resolve(settings, experiment)
    epochs = settings.epochs or 1
    compile_early(settings, epochs * len(experiment.train_rows) * (settings.size is not None))
    name, classes = settings.method, len(experiment.classes)
    chosen = method_options(name, experiment.name, options or {})
    notes = [memory_note(name, len(experiment.train_rows), classes, chosen)]
    randomness.seed(key(settings.seed, 0, 1))
    method = make_method(experiment, name, chosen)
    try_method(method, name, classes, epochs)
    notes.append(warmup_note(method, name, chosen, max(epochs, settings.linear_init)))
    config = record.config(experiment, settings, chosen, method, extra_config or {})
    randomness.seed(key(settings.seed, 0))
    model = make_model(experiment, settings)
    try_model(model, method, example(experiment, settings), name, str(settings.backbone))
    if "views" not in method.needs and smallest_share(len(experiment.train_rows), settings) == 1:
        try_alone(model, example(experiment, settings), str(settings.backbone))
    run = RunFolder(Path(out))
    with run.claim:
        going_on = started_first() and run.check(config, resume=resume, overwrite=overwrite)
        fabric = make_fabric(settings, unused="features" in method.needs)
        with following(fabric):
            fabric.launch()
        processes = Processes(fabric.global_rank, fabric.world_size, fabric.device)
        with (
            Together(processes, fabric, run.abandon),
            Display(quiet or not processes.first) as display,
        ):
            going_on = processes.agreed(going_on)
            if going_on and Run(run.path).finished:
                display.line(f"{run.path} is finished")
                return Run(run.path).require_result()
            for note in filter(None, notes):
                display.line(note)
            board = Board(run.tensorboard if tensorboard and processes.first else None)
            parts = (
                experiment,
                settings,
                chosen,
                method,
                model,
                run,
                fabric,
                processes,
                display,
                cache,
                board,
            )
            begun = going_on
            try:
                training = Training(*parts)
                anew = not going_on and processes.first
                if anew:
                    run.check(
                        config, resume=False, overwrite=overwrite
                    )  # another process may have begun meanwhile
                begun = True
                if anew:
                    run.begin(config)
                processes.wait()
                return training.run_all()
            except BaseException as error:
                gone = not begun or (processes.first and run.abandon())
                if isinstance(error, KeyboardInterrupt) and not gone:
                    raise Interruption from None
                if out_of_memory(error):
                    told = f"out of memory with batches of {settings.batch_size} on {fabric.device}"
                    raise UserError(
                        f"{told}; give a smaller --batch-size or --size, --cache disk, or more --devices"
                    ) from error
                raise
