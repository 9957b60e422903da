"""The training loop: restore or start; train, validate and save each epoch; test the best one."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spml import losses
from spml.data import Experiment, LabelTable
from spml.data.images.cache import Cache
from spml.data.images.decode import channels_first
from spml.data.images.loader import Feed, Rows
from spml.errors import UserError
from spml.keyed import key
from spml.model import Classifier, load_model, save_model
from spml.model.graphs import FastForward
from spml.model.scoring import Logits, score_batches, validation_map
from spml.model.store import check_model
from spml.runs import record
from spml.runs.folder import RunFolder
from spml.runs.run import scores_name
from spml.runs.settings import Resolved
from spml.train.card import write_card
from spml.train.device import Processes, Stop, described, device_name, synchronised
from spml.train.display import Display, epoch_text, headline, result_lines
from spml.train.loggers import RunLogger
from spml.train.repair import repair
from spml.train.state import Checkpoints, Parts, Progress, WeightAverage, Writer, seed_all
from spml.train.step import ADVICE, Step, Updater, optimizer_for, set_rates

POLL = 10  # batches after which several processes agree whether to stop


@dataclass(frozen=True)
class Job:
    """The parts of a run, built and checked; `labels` are those that the method learns from.

    Validation rows are scored from the epoch `validated_from` on; earlier ones cannot be selected.
    """

    experiment: Experiment
    settings: Resolved
    options: dict[str, Any]
    method: losses.Method
    model: Classifier
    labels: LabelTable
    validated_from: int = 0
    tested: bool = True


def epoch_order(seed: int, epoch: int, items: int) -> Rows:
    """Return the training rows in the order of an epoch."""
    return np.random.default_rng((seed, epoch)).permutation(items)


class Training:
    """One run: `run` trains the job to its end."""

    def __init__(
        self,
        job: Job,
        run: RunFolder,
        fabric: Any,
        processes: Processes,
        display: Display,
        cache: Cache | None,
        logger: RunLogger | None,
        started: float,
    ) -> None:
        settings, experiment, device = job.settings, job.experiment, fabric.device
        self.job, self.settings, self.run_folder = job, settings, run
        self.fabric, self.processes, self.cache = fabric, processes, cache
        self.display, self.logger = display, logger
        self.stop, self.progress = Stop(processes), Progress()
        self.writer = Writer(background=device.type == "cuda")

        self.classifier = job.model
        if processes.count > 1 and device.type == "cuda":
            self.classifier = synchronised(job.model)
        self.method = job.method.to(device)
        optimizer = optimizer_for(self.classifier, self.method, settings)
        self.model, optimizer = fabric.setup(self.classifier, optimizer)
        optimizers = [one for one in (optimizer, self.method.optimizer()) if one is not None]
        self.updater = Updater(fabric, self.classifier, optimizers, settings.on_nan == "skip")
        self.average = WeightAverage(self.classifier, settings.ema) if settings.ema else None
        plugin = fabric.strategy.precision
        parts = Parts(self.classifier, self.method, optimizers, device, self.average, plugin)
        self.checkpoints = Checkpoints(run, parts, self.writer, settings, started)

        self.val_truth = experiment.validation_labels(settings.selection)
        self.train = Feed(job.labels, settings.size, cache=cache)
        self.val = Feed(experiment.observed.take(experiment.val_rows), settings.size, cache=cache)

        self.precision = str(plugin.precision)
        forward = FastForward(
            self.model,
            self.classifier,
            settings.compile,
            self.precision,
            detailed="features" in self.method.needs,
            report=display.line,
        )
        self.step = Step(forward, self.method, settings, processes)
        self.best_weights: dict[str, Tensor] = {}  # as written last
        self.scored = 0  # batches

    def run(self) -> dict[str, Any]:
        """Start or resume the run, train and test it; return the content of result.json."""
        settings, progress = self.settings, self.progress
        with self.stop, self.writer:
            where = self.fabric.device, self.precision, self.processes.count
            how = described(settings, *where, self.cache is not None)
            self.display.line(f"{headline(self.job.experiment, settings, self.job.options)}; {how}")

            last = self.checkpoints.restore(progress, self.display.line)
            if last is None:
                self._start()
            else:
                batch = f", batch {progress.within['step']} of the next" if progress.within else ""
                self.display.line(f"resuming after epoch {last} of {settings.epochs}{batch}")
                if not progress.within:
                    self._keep_best(last)
                repair(self, last)

            for epoch in range((last or 0) + 1, settings.epochs + 1):
                if progress.has_dropped(settings.patience_drop):
                    break
                if 0 < self.method.stage(epoch, settings.epochs)[0] == epoch - 1:
                    self.checkpoints.restart(progress, self.processes, self.display.line)
                self._train_epoch(epoch)
                self._end_epoch(epoch)
                self._validate(epoch, progress.within["line"])
                progress.within = {}
                self._save(epoch)
                self._keep_best(epoch)
            return self._finish()

    def _start(self) -> None:
        """Do what comes before the first epoch: linear initialisation and a first validation."""
        settings, labels = self.settings, self.job.labels
        if self.processes.first:
            self.run_folder.write_labels(self.job.experiment, self.val_truth)
        if labels.x is None and self.step.forward.how != "none":
            # record or compile the step while the first pictures are decoded
            self.model.train()
            shape = min(settings.batch_size, len(labels)), settings.size, settings.size, 3
            pixels = torch.zeros(shape, dtype=torch.uint8, device=self.fabric.device)
            self.step.prepare(channels_first(pixels))
        if not settings.linear_init:
            self._validate(0, {})
            return
        from spml.train.linear_init import LinearInit

        stage = LinearInit(
            self.classifier, self.method, settings, self.fabric, self.display, self.stop
        )
        best = stage.run(self.train, labels, self.val, self.val_truth)
        if self.average is not None:
            self.average.restart()
        self._validate(0, {"linear_init": best})
        self._save(0)

    def _train_epoch(self, epoch: int) -> None:
        """Train on all batches of the epoch, or on the remaining ones of a resumed epoch."""
        settings, progress, device = self.settings, self.progress, self.fabric.device
        order = epoch_order(settings.seed, epoch, len(self.train))
        batches = np.split(order, range(settings.batch_size, len(order), settings.batch_size))
        if not progress.within:
            seed_all(key(settings.seed, epoch))  # an epoch inherits the weights and nothing else
            self.method.begin_epoch(epoch, settings.epochs)
            total = torch.zeros((), device=device)
            progress.within = {"step": 0, "total": total, "skipped": 0, "left_out": 0}
        within = progress.within
        done = within["step"]
        stage = self.method.stage(epoch, settings.epochs)
        self.model.train()
        items_done = sum(map(len, batches[:done]))
        self.display.begin(f"epoch {epoch}/{settings.epochs}", len(order), items_done)

        began = time.perf_counter()
        shares = map(self.processes.share, batches[done:])
        for number, (items, _) in enumerate(self.train.batches(shares), start=done):
            rows = batches[number]
            set_rates(self.updater.optimizers, settings, stage, epoch - 1 + number / len(batches))
            x = items.to(device, non_blocking=True)
            compute = partial(_batch_loss, self.step, self.job.labels, x, rows, epoch)
            loss = self.updater.update(compute, rows, f"epoch {epoch}, batch {number + 1}")
            if loss is None:
                within["skipped"] += 1
                within["left_out"] += len(rows)
            else:
                within["total"] += loss * len(rows)
                if self.average is not None:
                    self.average.update()

            within["step"] = number + 1
            progress.spent["train_images"] += len(rows)
            self.display.advance(len(rows), self.updater.watch.loss)
            self._stop_if_asked(epoch, (number + 1) % POLL == 0 or number + 1 == len(batches))
            if self.checkpoints.due:
                self._save(epoch - 1)
        self.updater.watch.finish()
        progress.spent["train_seconds"] += time.perf_counter() - began

    def _end_epoch(self, epoch: int) -> None:
        """Make the method's pass over the training split, and the epoch's line of the history."""
        within, epochs = self.progress.within, self.settings.epochs
        if "line" in within:
            return
        if self.method.wants_pass(epoch, epochs):
            for logits, rows in self._scored(self.train, "pass over the training split", epoch):
                self.method.take_scores(logits, torch.from_numpy(rows).to(self.fabric.device))
        self.method.end_epoch(epoch, epochs)
        counted = len(self.train) - within.get("left_out", 0)
        if not counted:
            raise UserError(f"no batch of epoch {epoch} had a finite loss; {ADVICE}")
        within["line"] = {"loss": float(within["total"]) / counted}
        if within["skipped"]:
            within["line"]["skipped"] = within["skipped"]
        within["line"].update(self.method.record(epoch, epochs))

    def _validate(self, epoch: int, line: dict[str, Any]) -> None:
        """Score the validation rows, and write and print the epoch's line of the history."""
        progress, selection = self.progress, self.settings.selection
        logits, figure = None, None
        scored = epoch >= self.job.validated_from
        if scored and len(self.val):
            logits = self.score_validation(epoch)
            figure = validation_map(logits, self.val_truth, selection)
        line = {"epoch": epoch, **line, "val_map": figure}
        progress.history.append(line)
        best = progress.best
        better = epoch > 0 and scored and (not best or figure is None or figure > best["val_map"])
        if better:
            progress.best = {"epoch": epoch, "val_map": figure}
        if not self.processes.first:
            return
        if logits is not None:
            self.run_folder.write_scores(scores_name("val", epoch), logits)
        self.run_folder.write_history(progress.history)
        if self.logger is not None:
            self.logger.follow(progress.history)
        if epoch:
            self.display.line(epoch_text(line, selection, better))

    def _keep_best(self, epoch: int) -> None:
        """Write the model if this epoch is the best, after a checkpoint contains it.

        A run that is killed in between writes the model when it is resumed, so model.json always
        describes the weights beside it.
        """
        job, best = self.job, self.progress.best
        if self.processes.first and best.get("epoch") == epoch:
            parts = job.experiment, self.settings, job.options, self.classifier
            info = record.model_info(*parts, best)
            with self._averaged():
                self.best_weights = self.writer.copy(dict(self.classifier.state_dict()))
                self.writer.do(save_model, self.run_folder.best, self.best_weights, info)

    def _save(self, finished: int) -> None:
        """Save a checkpoint with `finished` epochs and the progress of the next."""
        self.updater.watch.finish()  # weights that are not finite are not saved
        if self.processes.first:
            self.run_folder.write_contents(self.job.experiment, self.cache)
        self.checkpoints.save(self.progress, finished, write=self.processes.first)

    def _finish(self) -> dict[str, Any]:
        """Test the best model, and write result.json and the model card."""
        job, progress, run = self.job, self.progress, self.run_folder
        self.writer.wait()
        self.processes.wait()
        tested: dict[str, Any] = {"test_map": None, "per_class_ap": None}
        if (test := job.experiment.test) is not None and job.tested:
            if not (self.writer.background and self.best_weights):
                check_model(run.best, progress.best["epoch"])
                self.best_weights = load_model(run.best)[0].state_dict()
            self.classifier.load_state_dict(self.best_weights)
            feed = Feed(test, self.settings.size, cache=self.cache)
            logits = self.score(feed, "test")
            tested = record.test_figures(logits, test)
            if self.processes.first:
                run.write_scores("test", logits)

        progress.spent["seconds"] += time.perf_counter() - self.checkpoints.started
        machine = {"device": device_name(self.fabric.device), "precision": self.precision}
        facts = job.experiment, self.settings, job.options, progress.best, tested
        result = record.result(*facts, machine, progress.spent)
        if self.processes.first:
            write_card(run.path, result)
            if self.logger is not None:
                self.logger.follow(progress.history)
                self.logger.finish(result)
            run.write_result(result)

        last_best = len(self.val) > 0 and progress.best["epoch"] == self.settings.epochs > 1
        for text in result_lines(result, run.path, last_best):
            self.display.line(text)
        return result

    def score_validation(self, epoch: int = 0) -> Logits:
        """Score the validation rows with the averaged weights, or the current ones without them."""
        with self._averaged():
            return self.score(self.val, "validation", epoch)

    def score(self, feed: Feed, what: str, epoch: int = 0) -> Logits:
        """Return the logits of all items with the current weights."""
        return torch.cat([logits for logits, _ in self._scored(feed, what, epoch)]).cpu().numpy()

    def _scored(self, feed: Feed, what: str, epoch: int = 0) -> Iterator[tuple[Tensor, Rows]]:
        """Yield logits and rows of all items in order."""
        batch, device = self.settings.eval_batch_size * self.processes.count, self.fabric.device
        self.display.begin(what, len(feed))
        for logits, rows in score_batches(self.model, feed, batch, device, self.processes):
            yield logits, rows
            self._advance(len(rows), epoch)

    def _averaged(self) -> AbstractContextManager[None]:
        """Give the model its averaged weights within the block, if the run averages them."""
        return nullcontext() if self.average is None else self.average.applied()

    def _advance(self, count: int, epoch: int) -> None:
        """Show that items were scored; stop between batches if the user asked for it."""
        self.display.advance(count)
        self.scored += 1
        self._stop_if_asked(epoch, self.scored % POLL == 0)

    def _stop_if_asked(self, epoch: int, poll: bool) -> None:
        """Save and raise KeyboardInterrupt if the user asked to stop; epoch 0 saves nothing."""
        if self.stop.agreed(poll):
            if epoch:
                self._save(epoch - 1)
            self.writer.wait()
            self.processes.wait()  # until rank 0 has written the checkpoint
            raise KeyboardInterrupt


def _batch_loss(
    step: Step, labels: LabelTable, x: Tensor, rows: Rows, epoch: int
) -> tuple[Tensor | None, Tensor]:
    """Return the loss of a batch, None if not finite, and its logits."""
    index = torch.from_numpy(rows).to(x.device, non_blocking=True)
    observed = torch.from_numpy(labels.rows(rows)).to(x.device, non_blocking=True)
    loss = step.loss(x, observed, index, rows, epoch)
    return loss, step.logits
