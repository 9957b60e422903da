"""`fit`: resolve the settings, build and check the parts, and train them into a run folder."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spml import losses
from spml.data import Experiment, LabelTable
from spml.data.images.cache import MEMORY_SHARE, Cache, open_cache
from spml.data.images.store import format_bytes, free_memory
from spml.errors import Interruption, UserError
from spml.keyed import key
from spml.machine import out_of_memory, started_first
from spml.model import Classifier
from spml.runs import record
from spml.runs.folder import RunFolder
from spml.runs.settings import AUTO, Resolved, Settings
from spml.runs.verify import finished
from spml.train.device import Processes, launch, make_fabric, norm_note, smallest_share
from spml.train.display import Display
from spml.train.loggers import RunLogger
from spml.train.loop import Job, Training, epoch_order
from spml.train.repair import compare_data
from spml.train.resolve import (
    check_method,
    check_model,
    check_single_item,
    method_options,
    options_from_data,
    resolve,
)
from spml.train.state import seed_all

LARGE = 2**30  # bytes of a method's memory from which a run prints it


def fit(
    experiment: Experiment,
    settings: Settings,
    out: str | Path,
    *,
    options: Mapping[str, Any] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    accept_changed_data: bool = False,
    quiet: bool = False,
    extra_config: Mapping[str, Any] | None = None,
    cache: Cache | None = None,
    logger: RunLogger | None = None,
    validated_from: int = 0,
    tested: bool = True,
) -> dict[str, Any]:
    """Train a model, choose its epoch by the declared labels, test it once, write the run folder.

    Args:
        experiment: the data, from `spml.data.load`; without validation rows the last epoch is
            chosen.
        settings: how to train.
        out: the run folder.
        options: of the method; the others have their published or default values.
        resume: resume the run in `out`, if there is one.
        overwrite: replace the run in `out`.
        accept_changed_data: resume also if items have changed since, and record it.
        quiet: print nothing.
        extra_config: more entries of config.json, such as the command.
        cache: of decoded pictures, if several runs share one; None opens the run's own.
        logger: of a tracker that receives the history and the test figures too.
        validated_from: first epoch after which validation rows are scored.
        tested: score the test rows at the end.

    Returns:
        The content of result.json.
    """
    resolved = resolve(settings, experiment)
    if resolved.method == AUTO:
        from spml.train.auto import decide

        if options:
            raise UserError(
                f"option {next(iter(options))!r}: method 'auto' sets the options of its "
                "candidates; name a method that has it"
            )
        winner = decide(
            experiment,
            settings,
            Path(out),
            resume=resume,
            overwrite=overwrite,
            accept_changed_data=accept_changed_data,
            quiet=quiet,
            extra_config=extra_config or {},
            cache=cache,
        )
        return fit(experiment, out=out, quiet=quiet, cache=cache, logger=logger, **winner)
    job, notes = build(experiment, resolved, options or {})
    job = replace(job, validated_from=validated_from, tested=tested)
    extra = {**(extra_config or {})}
    if decided := sorted(options_from_data(resolved.method, experiment, options or {})):
        extra["options_from_data"] = decided
    config = record.config(experiment, resolved, job.options, job.method, extra)
    run = RunFolder(Path(out))
    with run.claim:
        ways = {"resume": resume, "overwrite": overwrite, "accepted": accept_changed_data}
        resuming = started_first() and run.check(config, **ways)
        if resuming:
            notes += compare_data(run, config, experiment, accepted=accept_changed_data)
        fabric = make_fabric(resolved, unused="features" in job.method.needs)
        with (
            launch(fabric, resolved, run.abandon) as processes,
            Display(quiet or not processes.first) as display,
        ):
            resuming = processes.agreed(resuming)
            if resuming and (result := finished(run.path, display.line)) is not None:
                display.line(f"{run.path} is finished")
                return result
            for note in (*notes, norm_note(job.model, processes)):
                if note is not None:
                    display.line(note)
            owner, started = _Owner(run, processes, begun=resuming), time.perf_counter()
            logger = logger if processes.first else None
            with (
                owner.abandoning(resolved, fabric.device),
                _pictures(job, fabric, processes, display, cache) as pictures,
            ):
                training = Training(job, run, fabric, processes, display, pictures, logger, started)
                if not resuming:
                    owner.begin(config, overwrite=overwrite)
                if logger is not None:
                    logger.open(run.path, config)
                processes.wait()
                return training.run()


def build(
    experiment: Experiment, settings: Resolved, options: Mapping[str, Any]
) -> tuple[Job, list[str]]:
    """Build the method and the model, and check each before anything is decoded or written."""
    name, items, classes = settings.method, len(experiment.train_rows), len(experiment.classes)
    chosen = method_options(name, experiment, options)
    notes = [memory_note(name, items, classes, chosen)]

    seed_all(key(settings.seed, 0, 1))
    method = make_method(experiment, name, chosen)
    check_method(method, name, classes, settings.epochs)
    epochs = max(settings.epochs, settings.linear_init)
    notes.append(warmup_note(method, name, chosen, epochs))

    seed_all(key(settings.seed, 0))
    model = make_model(experiment, settings)
    item = example(experiment, settings)
    check_model(model, method, item, name, settings.backbone)
    if "views" not in method.needs and smallest_share(items, settings) == 1:
        check_single_item(model, item, settings.backbone)

    labels = train_labels(experiment, method, name)
    job = Job(experiment, settings, chosen, method, model, labels)
    return job, [note for note in notes if note is not None]


def memory_note(name: str, items: int, classes: int, options: Mapping[str, Any]) -> str | None:
    """Describe the memory a method needs, if it is large; raise UserError if it is too large."""
    size = losses.memory(name, items, classes, **options)
    free = free_memory(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    note = f"{name} keeps {format_bytes(size)} for {items:,} items of {classes:,} classes"
    if free is not None and size > MEMORY_SHARE * free:
        raise UserError(
            f"{note}, but only {format_bytes(free)} of memory are free; "
            "give other options or another --method"
        )
    return note if size >= LARGE else None


def warmup_note(
    method: losses.Method, name: str, options: Mapping[str, Any], epochs: int
) -> str | None:
    """Warn if training ends before the warm-up of a method does."""
    warmup = options.get("warmup")
    if name not in losses.names() or not isinstance(warmup, int) or warmup < epochs:
        return None
    if not method.needs & {"pass", "features"}:
        return None  # these options have no warm-up
    plural = "s" if epochs > 1 else ""
    return (
        f"{name} only warms up in {epochs} epoch{plural}, because its warmup is {warmup}; "
        "give more --epochs or a lower --set warmup"
    )


def make_method(experiment: Experiment, name: str, options: dict[str, Any]) -> losses.Method:
    """Build the method; one that stores values per item gets the observed training labels."""
    if "items" not in losses.needs(name):
        return losses.create(name, **options)
    table = experiment.observed.take(experiment.train_rows)
    return losses.create(
        name, **options, items=len(table), classes=len(table.classes), observed=table
    )


def make_model(experiment: Experiment, settings: Resolved) -> Classifier:
    """Build the classifier; feature vectors are standardised by the training split."""
    x = experiment.observed.x
    features = int(x.shape[1]) if x is not None and x.ndim == 2 else None
    model = Classifier.build(
        settings.backbone, len(experiment.classes), settings.weights, features, settings.head
    )
    if x is not None and features is not None:
        model.standardise(torch.from_numpy(np.ascontiguousarray(x[experiment.train_rows])))
    model.frozen_norm = settings.frozen_norm
    return model


def example(experiment: Experiment, settings: Resolved) -> Tensor:
    """Return an item of zeros, (1, ...), with the shape and type of the training items."""
    x = experiment.observed.x
    if x is not None and x.ndim == 2:
        return torch.zeros(1, x.shape[1])
    return torch.zeros(1, 3, settings.size, settings.size, dtype=torch.uint8)


def train_labels(experiment: Experiment, method: losses.Method, name: str) -> LabelTable:
    """Return the labels of the training split that the method learns from."""
    labels = experiment.complete if method.trains_on == "complete" else experiment.observed
    if labels is None:
        raise UserError(
            f"{name} trains on complete labels, which these data lack; give another --method"
        )
    return labels.take(experiment.train_rows)


class _Owner:
    """Begins a run, and removes it again if it ends before its first checkpoint."""

    def __init__(self, run: RunFolder, processes: Processes, *, begun: bool) -> None:
        self.run, self.processes, self.begun = run, processes, begun

    def begin(self, config: dict[str, Any], *, overwrite: bool) -> None:
        """Write config.json, unless another process has begun a run in the meantime."""
        if self.processes.first:
            self.run.check(config, resume=False, overwrite=overwrite)
        self.begun = True
        if self.processes.first:
            self.run.begin(config)

    @contextmanager
    def abandoning(self, settings: Resolved, device: torch.device) -> Iterator[None]:
        """Clean up after an error, and convert interruptions and lack of memory."""
        try:
            yield
        except BaseException as error:
            removed = not self.begun or (self.processes.first and self.run.abandon())
            if isinstance(error, KeyboardInterrupt) and not removed:
                raise Interruption from None
            if out_of_memory(error):
                raise UserError(
                    f"out of memory with batches of {settings.batch_size} on {device}; "
                    "give a smaller --batch-size or --size, --cache disk, or more --devices"
                ) from error
            raise


@contextmanager
def _pictures(
    job: Job, fabric: Any, processes: Processes, display: Display, cache: Cache | None
) -> Iterator[Cache | None]:
    """Yield the shared cache, or open the run's own and close it at the end."""
    if cache is not None or job.labels.x is not None:
        yield cache
        return
    device = fabric.device
    with fabric.rank_zero_first(local=True):
        # on a CPU, decoding in the background would slow down training
        background = device.type == "cuda" and processes.count == 1
        own = open_pictures(job.experiment, job.settings, device, display, background)
    try:
        yield own
    finally:
        if own is not None:
            own.close()


def open_pictures(
    experiment: Experiment,
    settings: Resolved,
    device: torch.device,
    display: Display,
    background: bool = False,
) -> Cache | None:
    """Open the cache of the decoded pictures of all splits, in the order of their first use."""
    observed = experiment.observed
    train, val = observed.take(experiment.train_rows), observed.take(experiment.val_rows)
    order = epoch_order(settings.seed, 1, len(train))
    return open_cache(
        [table for table in (train, val, experiment.test) if table is not None],
        settings.size,
        settings.cache,
        folder=settings.cache_dir,
        device=device,
        progress=display,
        background=background,
        first=[(val, range(len(val))), (train, order)],
    )
