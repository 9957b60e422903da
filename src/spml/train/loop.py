"""The training loop, from top to bottom."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spml import losses
from spml.data import Experiment
from spml.data.images.cache import Cache, open_cache
from spml.data.images.decode import channels_first
from spml.data.images.loader import Feed
from spml.errors import UserError
from spml.keyed import key
from spml.model import Classifier, load_model, save_model
from spml.model.classifier import Forward
from spml.model.graphs import FastForward
from spml.model.scoring import score_batches, validation_map
from spml.runs import record
from spml.runs.folder import RunFolder
from spml.runs.run import scores_name
from spml.runs.settings import Settings
from spml.train import randomness
from spml.train.card import write_card
from spml.train.device import described, device_name, eval_batch, how_to_run
from spml.train.display import Display, headline, test_words
from spml.train.guard import ADVICE, Guard, Stop, finite_gradients, out_of_memory
from spml.train.linear_init import LinearInit
from spml.train.optimizer import set_rates, take_step
from spml.train.processes import Processes
from spml.train.progress import Parts, Progress
from spml.train.setup import optimizer_for, synchronised, train_labels
from spml.train.step import Step
from spml.train.tensorboard import Board
from spml.train.writer import Writer

POLLED = 10  # steps after which several processes agree whether to stop


class Training:
    """One run: its parts, and the loop over epochs."""

    def __init__(
        self,
        experiment: Experiment,
        settings: Settings,
        options: dict[str, Any],
        method: losses.Method,
        model: Classifier,
        run: RunFolder,
        fabric: Any,
        processes: Processes,
        display: Display,
        cache: Cache | None,
        board: Board,
    ) -> None:
        self.started = self.saved = time.perf_counter()
        self.experiment, self.settings, self.options = experiment, settings, options
        self.run, self.fabric, self.processes = run, fabric, processes
        self.display, self.board, self.stop = display, board, Stop()
        device = fabric.device
        self.writer = Writer(beside=device.type == "cuda")
        if processes.count > 1 and device.type == "cuda":
            model = synchronised(model)
        self.classifier, self.guard = model, Guard(model)
        self.method = method.to(device)
        self.model, self.optimizer = fabric.setup(
            model, optimizer_for(model, self.method, settings)
        )
        self.optimizers = [
            self.optimizer,
            *([] if (own := self.method.optimizer()) is None else [own]),
        ]
        self.train_labels = train_labels(experiment, method, settings.method)
        self.val_truth = experiment.validation_labels(str(settings.selection))
        val = experiment.observed.take(experiment.val_rows)
        mode = settings.cache or ("device" if device.type == "cuda" else "disk")
        meanwhile = (
            device.type == "cuda" and processes.count == 1
        )  # elsewhere decoding would slow training down
        with fabric.rank_zero_first(local=True):
            self.cache = cache or open_cache(
                [table for table in (self.train_labels, val, experiment.test) if table is not None],
                settings.size,
                mode,
                folder=settings.cache_dir,
                device=device,
                progress=display,
                background=meanwhile,
                first=[(val, range(len(val))), (self.train_labels, self._order(1))],
            )
        self.own_cache = self.cache if cache is None else None
        self.train = Feed(self.train_labels, settings.size, cache=self.cache)
        self.val = Feed(val, settings.size, cache=self.cache)
        self.precision = precision = str(fabric._precision.precision)
        pictures = model.mean.ndim == 4
        how = how_to_run(
            settings, device, processes.count, _epochs(settings) * len(self.train) * pictures
        )
        detailed = "features" in method.needs
        forward = Forward(self.model, detailed=detailed)
        if how != "none":
            forward = FastForward(
                self.model,
                model,
                how,
                precision,
                detailed=detailed,
                report=display.line,
                fused=settings.fused_norm,
            )
        self.step = Step(forward, self.method, settings, processes)
        self.how = described(
            settings, device, precision, how, processes.count, mode if self.cache else None
        )
        parts = model, self.method, self.optimizers, device, fabric._precision
        self.parts, self.at = Parts(*parts), Progress()
        self.kept: dict[str, Tensor] = {}  # the best model's weights, as they were last written
        self.scored = 0  # batches

    def run_all(self) -> dict[str, Any]:
        """Train from where the run stands, then evaluate; a wish to stop is granted once what is done is saved."""
        with self.stop, self.own_cache or nullcontext(), self.writer, self.board:
            return self._run_all()

    def _run_all(self) -> dict[str, Any]:
        self.display.line(f"{headline(self.experiment, self.settings)}; {self.how}")
        last = self._restore()
        if last is None:
            if self.processes.first:
                self.run.write_labels(self.experiment, self.val_truth)
            self._rehearse()
            self._begin()
        elif not self.at.within:
            self._keep_best(last)
        for epoch in range((last or 0) + 1, _epochs(self.settings) + 1):
            if self._should_stop():
                break
            self._train_epoch(epoch)
            self._after_epoch(epoch)
            self._validate(epoch, self.at.within["line"])
            self.at.within = {}
            self._save(epoch)
            self._keep_best(epoch)
        return self._finish()

    def _rehearse(self) -> None:
        """Record or compile the step while the first pictures are decoded."""
        table, size = self.train_labels, self.settings.size
        if table.x is None and size is not None and self.step.forward.how != "none":
            self.model.train()
            few = min(self.settings.batch_size or 1, len(table))
            pixels = torch.zeros(few, size, size, 3, dtype=torch.uint8, device=self.fabric.device)
            self.step.prepare(channels_first(pixels))

    def _begin(self) -> None:
        """What comes before the first epoch: training of the head alone, where it is wanted, and a validation."""
        if not self.settings.linear_init:
            return self._validate(0, {})
        told = self.display, self.stop, self.guard
        stage = LinearInit(self.classifier, self.method, self.settings, self.fabric, *told)
        self._validate(
            0, {"linear_init": stage.run(self.train, self.train_labels, self.val, self.val_truth)}
        )
        return self._save(0)

    def _train_epoch(self, epoch: int) -> None:
        """All batches of the epoch, or those that are left of it."""
        settings, device = self.settings, self.fabric.device
        order = self._order(epoch)
        batches = np.split(order, range(size := settings.batch_size or 1, len(order), size))
        if not self.at.within:
            randomness.seed(
                key(settings.seed, epoch)
            )  # an epoch depends on nothing before it but the weights
            self.method.begin_epoch(epoch, _epochs(settings))
            self.at.within = {
                "step": 0,
                "total": torch.zeros((), device=device),
                "skipped": 0,
                "left_out": 0,
            }
        self.model.train()
        done = self.at.within["step"]
        self.display.begin(
            f"epoch {epoch}/{settings.epochs}", len(order), sum(map(len, batches[:done]))
        )
        began = time.perf_counter()
        shares = map(self.processes.share, batches[done:])
        for number, (items, _) in enumerate(self.train.batches(shares), start=done):
            rows = batches[number]
            set_rates(
                self.optimizers, settings, (epoch - 1 + number / len(batches)) / _epochs(settings)
            )
            self._batch(items.to(device, non_blocking=True), rows, epoch, number)
            self.at.within["step"] = number + 1
            self.at.spent["train_images"] += len(rows)
            self.display.advance(len(rows), self.guard.loss)
            self._save_within(epoch, number + 1 == len(batches))
        self.guard.finish()
        self.at.spent["train_seconds"] += time.perf_counter() - began

    def _order(self, epoch: int) -> Any:
        """Of the training rows in an epoch."""
        return np.random.default_rng((self.settings.seed, epoch)).permutation(
            len(self.train_labels)
        )

    def _batch(self, x: Tensor, rows: Any, epoch: int, number: int) -> None:
        """One step on this process's share of the rows."""
        device, within = self.fabric.device, self.at.within
        index = torch.from_numpy(rows).to(device, non_blocking=True)
        observed = torch.from_numpy(self.train_labels.rows(rows)).to(device, non_blocking=True)
        skip = self.settings.on_nan == "skip"
        buffers = [buffer.clone() for buffer in self.classifier.buffers()] if skip else []
        loss = self.step.loss(x, observed, index, rows, epoch)
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        if loss is not None:
            self.fabric.backward(loss)
        if loss is None or (skip and not finite_gradients(self.optimizers, self.precision)):
            for buffer, kept in zip(self.classifier.buffers(), buffers, strict=True):
                buffer.copy_(kept)  # statistics of a batch that was not finite
            within["skipped"] += 1
            within["left_out"] += len(rows)
            return
        take_step(self.optimizers, self.fabric)
        self.guard.watch(loss, self.step.logits, rows, f"epoch {epoch}, batch {number + 1}")
        within["total"] += loss.detach() * len(rows)

    def _after_epoch(self, epoch: int) -> None:
        """The pass over the training split, where the method wants one, and the epoch's line of the history."""
        if "line" in self.at.within:
            return
        if self.method.wants_pass(epoch, _epochs(self.settings)):
            self.display.begin("pass over the training split", len(self.train))
            for logits, rows in self._scored(self.train):
                self.method.take_scores(logits, torch.from_numpy(rows).to(self.fabric.device))
                self._advance(len(rows), epoch)
        self.method.end_epoch(epoch, _epochs(self.settings))
        skipped, counted = (
            self.at.within["skipped"],
            len(self.train) - self.at.within.get("left_out", 0),
        )
        if not counted:
            raise UserError(f"no batch of epoch {epoch} had a finite loss; {ADVICE}")
        line = {
            "loss": float(self.at.within["total"]) / counted,
            **({"skipped": skipped} if skipped else {}),
        }
        self.at.within["line"] = line

    def _validate(self, epoch: int, line: dict[str, Any]) -> None:
        logits = self._logits(self.val, "validation", epoch) if len(self.val) else None
        figure = None
        if logits is not None:
            figure = validation_map(logits, self.val_truth, _selection(self.settings))
        self.at.history.append({"epoch": epoch, **line, "val_map": figure})
        better = epoch > 0 and (
            not self.at.best or figure is None or figure > self.at.best["val_map"]
        )
        if better:
            self.at.best = {"epoch": epoch, "val_map": figure}
        if not self.processes.first:
            return
        if logits is not None:
            self.run.write_scores(scores_name("val", epoch), logits)
        self.run.write_history(self.at.history)
        self.board.follow(self.at.history)
        if epoch:
            name = "val mAP" if self.settings.selection == "complete" else "val estimate"
            shown = "" if figure is None else f"  {name} {figure:.2f}{'  best' if better else ''}"
            left = f"  {line['skipped']} batches left out" if "skipped" in line else ""
            self.display.line(f"epoch {epoch:>2}  loss {line['loss']:.4f}{shown}{left}")

    def _keep_best(self, epoch: int) -> None:
        """Write the model, if this epoch is the best, once a checkpoint holds it.

        A run that is killed in between writes it when it goes on: what is said of a model is of that very model.
        """
        if self.processes.first and self.at.best.get("epoch") == epoch:
            info = record.model_info(
                self.experiment, self.settings, self.options, self.classifier, self.at.best
            )
            self.kept = self.writer.copy(dict(self.classifier.state_dict()))
            self.writer.do(save_model, self.run.best, self.kept, info)

    def _scored(self, feed: Feed) -> Any:
        batch = eval_batch(self.settings, self.fabric.device) * self.processes.count
        with self.step.forward.scoring():
            yield from score_batches(self.model, feed, batch, self.fabric.device, self.processes)

    def _logits(self, feed: Feed, what: str, epoch: int = 0) -> Any:
        self.display.begin(what, len(feed))
        parts = []
        for logits, rows in self._scored(feed):
            parts.append(logits)
            self._advance(len(rows), epoch)
        return torch.cat(parts).cpu().numpy()

    def _advance(self, count: int, epoch: int) -> None:
        """So many items were scored; a wish to stop is granted between batches."""
        self.display.advance(count)
        self.scored += 1
        if self._wished(self.scored % POLLED == 0):
            self._stop(epoch)

    def _save_within(self, epoch: int, last: bool) -> None:
        """Between two steps: save if it is time to, and stop if that is wished."""
        if self._wished(self.at.within["step"] % POLLED == 0 or last):
            self._stop(epoch)
        if time.perf_counter() - self.saved > 60 * self.settings.checkpoint_minutes:
            self._save(epoch - 1)

    def _wished(self, polled: bool) -> bool:
        """Whether to stop; several processes agree on that where all of them are told to."""
        return (polled or self.processes.count == 1) and self.processes.agreed(self.stop.asked)

    def _stop(self, epoch: int) -> None:
        if epoch:
            self._save(epoch - 1)
        self.writer.wait()
        self.processes.wait()  # until it is written
        raise KeyboardInterrupt

    def _should_stop(self) -> bool:
        drop = self.settings.patience_drop
        if drop is None or not self.at.best or self.at.within or not len(self.val):
            return False
        return bool(self.at.history[-1]["val_map"] < self.at.best["val_map"] - drop)

    def _save(self, finished: int) -> None:
        """A checkpoint: `finished` epochs, and how far the next has come."""
        self.guard.finish()
        self.saved = now = time.perf_counter()
        if not self.processes.first:
            return
        state = self.at.state(finished, self.parts, now - self.started)
        self.writer.do(self.run.save_checkpoint, self.writer.copy(state))

    def _restore(self) -> int | None:
        """The last finished epoch; None where nothing is done."""
        state = self.run.load_checkpoint()
        if state is None:
            return None
        try:
            last = self.at.take_up(state, self.parts, self.settings.seed, _epochs(self.settings))
        except (
            KeyError,
            TypeError,
            AttributeError,
            ValueError,
            RuntimeError,
        ) as error:  # as torch words it
            if out_of_memory(error):
                raise
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:150]}"
            raise UserError(
                f"{self.run.checkpoint} does not fit this run ({reason}); give --overwrite"
            ) from error
        within = f", batch {self.at.within['step']} of the next" if self.at.within else ""
        self.display.line(f"going on after epoch {last} of {self.settings.epochs}{within}")
        return last

    def _finish(self) -> dict[str, Any]:
        tested: dict[str, Any] = {"test_map": None, "per_class_ap": None}
        test = self.experiment.test
        self.writer.wait()
        self.processes.wait()
        if test is not None:
            beside = (
                self.writer.beside and self.kept
            )  # a copy of the best, which need not be read again
            self.classifier.load_state_dict(
                self.kept if beside else load_model(self.run.best)[0].state_dict()
            )
            logits = self._logits(Feed(test, self.settings.size, cache=self.cache), "test")
            tested = record.test_figures(logits, test)
            if self.processes.first:
                self.run.write_scores("test", logits)
        self.at.spent["seconds"] += time.perf_counter() - self.started
        by = {"device": device_name(self.fabric.device), "precision": self.precision}
        result = record.result(
            self.experiment, self.settings, self.options, self.at.best, tested, by, self.at.spent
        )
        if self.processes.first:
            write_card(self.run.path, result)
            self.board.follow(self.at.history)
            self.board.finish(result)
            self.run.write_result(result)
        chosen = f"chosen epoch {self.at.best['epoch']}{test_words(tested)}"
        self.display.line(f"{chosen}; {result['seconds']:.0f} s; {self.run.path}")
        if len(self.val) and self.at.best["epoch"] == _epochs(self.settings) > 1:
            self.display.line(
                "the last epoch is the best: with more --epochs or a higher --lr it may get better still"
            )
        return result


def _epochs(settings: Settings) -> int:
    return settings.epochs or 1


def _selection(settings: Settings) -> Any:
    return settings.selection or "observed"
