"""The training loop, from top to bottom."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from spml import losses
from spml.data import Experiment
from spml.data.cache import open_cache
from spml.data.feed import Feed
from spml.errors import UserError
from spml.keyed import key
from spml.model import Classifier, load_model, save_model
from spml.train import record
from spml.train.display import Display
from spml.train.evaluate import predict_logits, score, score_batches
from spml.train.linear_init import LinearInit
from spml.train.optimizer import make_optimizer, rate, set_rate
from spml.train.run import RunFolder, read_json
from spml.train.settings import Settings, method_options, resolve
from spml.train.step import Step
from spml.train.trial import memory_note, try_method, try_model

EVAL_FACTOR = 4  # evaluation batches are this many times larger: no gradient is kept


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
) -> dict[str, Any]:
    """Train, choose the epoch by the declared labels, evaluate it once on test, and write the run folder.

    Args:
        experiment: the data, from `spml.data.load`.
        settings: how to train.
        out: the run folder.
        options: of the method; what is not given has its published or default value.
        resume: go on with the run that is in `out`, if one is.
        overwrite: replace the run that is in `out`.
        quiet: show nothing.
        extra_config: more to keep in config.json, such as the command.

    Returns:
        What result.json holds.
    """
    settings = resolve(settings, experiment)
    chosen = method_options(settings.method, experiment.name, options or {})
    note = memory_note(settings.method, len(experiment.train_rows), len(experiment.classes), chosen)
    torch.manual_seed(key(settings.seed, 0, 1))
    method = losses.create(settings.method, **chosen, **_given(experiment, settings.method))
    try_method(method, settings.method, len(experiment.classes), _epochs(settings))
    config = record.config(experiment, settings, chosen, method, extra_config or {})
    torch.manual_seed(key(settings.seed, 0))
    model = _model(experiment, settings)
    try_model(model, method, _example(experiment, settings), settings.method, str(settings.backbone))
    run = RunFolder(Path(out))
    going_on = run.check(config, resume=resume, overwrite=overwrite)
    with Display(quiet) as display:
        if going_on and (run.path / "result.json").exists():
            display.line(f"{run.path} is finished")
            return read_json(run.path / "result.json")
        if note:
            display.line(note)
        training = _Training(experiment, settings, chosen, method, model, run, display)
        if not going_on:
            run.begin(config)
        try:
            return training.run_all()
        except BaseException:
            run.abandon()
            raise


class _Training:
    """One run: its parts, and the loop over epochs."""

    def __init__(
        self,
        experiment: Experiment,
        settings: Settings,
        options: dict[str, Any],
        method: losses.Method,
        model: Classifier,
        run: RunFolder,
        display: Display,
    ) -> None:
        from lightning.fabric import Fabric

        self.started = time.perf_counter()
        self.experiment, self.settings, self.options = experiment, settings, options
        self.run, self.display = run, display
        cuda = settings.accelerator == "cuda" or (settings.accelerator == "auto" and torch.cuda.is_available())
        precision: Any = settings.precision or ("bf16-mixed" if cuda else "32-true")
        try:
            self.fabric = Fabric(accelerator=settings.accelerator, devices=1, precision=precision)
        except (RuntimeError, ValueError, TypeError) as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"--accelerator {settings.accelerator} --precision {precision}: {reason}") from error
        optimizer = _optimizer(model, method, settings)
        self.classifier = model
        self.model, self.optimizer = self.fabric.setup(model, optimizer)
        self.method = method.to(self.fabric.device)
        self.step = Step(self.model, self.method, settings)
        self.optimizers = [self.optimizer, *([] if (own := self.method.optimizer()) is None else [own])]
        labels = experiment.complete if method.trains_on == "complete" else experiment.observed
        if labels is None:
            raise UserError(
                f"{settings.method} trains on complete labels, which these data lack; give another --method"
            )
        self.train_labels = labels.take(experiment.train_rows)
        self.val_truth = experiment.validation_labels(str(settings.selection))
        val = experiment.observed.take(experiment.val_rows)
        self.cache = open_cache(
            [table for table in (self.train_labels, val, experiment.test) if table is not None],
            settings.size,
            settings.cache,
            folder=settings.cache_dir,
            device=self.fabric.device,
            tell=display,
        )
        self.train = Feed(self.train_labels, settings.size, cache=self.cache)
        self.val = Feed(val, settings.size, cache=self.cache)
        self.history: list[dict[str, Any]] = []
        self.best: dict[str, Any] = {}
        self.spent = {"train_images": 0, "train_seconds": 0.0, "seconds": 0.0}

    def run_all(self) -> dict[str, Any]:
        """Train from where the run stands, then evaluate."""
        last = self._restore()
        if last is None:
            self.display.line(self._headline())
            self.run.write_labels(self.experiment, self.val_truth)
            self._begin()
        for epoch in range((last or 0) + 1, _epochs(self.settings) + 1):
            if self._should_stop():
                break
            line = self._train_epoch(epoch)
            self._validate(epoch, line)
            self._save(epoch)
        return self._finish()

    def _begin(self) -> None:
        """What comes before the first epoch: training of the head alone, where it is wanted, and a validation."""
        if not self.settings.linear_init:
            return self._validate(0, {})
        stage = LinearInit(self.classifier, self.method, self.settings, self.fabric, self.display)
        self._validate(0, {"linear_init": stage.run(self.train, self.train_labels, self.val, self.val_truth)})
        return self._save(0)

    def _train_epoch(self, epoch: int) -> dict[str, Any]:
        settings, device = self.settings, self.fabric.device
        torch.manual_seed(key(settings.seed, epoch))  # so that an epoch depends on nothing before it but the weights
        self.model.train()
        order = np.random.default_rng((settings.seed, epoch)).permutation(len(self.train))
        batch = settings.batch_size or 1
        total = torch.zeros((), device=device)
        self.method.begin_epoch(epoch, _epochs(settings))
        self.display.begin(f"epoch {epoch}/{settings.epochs}", len(order))
        began = time.perf_counter()
        batches = np.split(order, range(batch, len(order), batch))
        for number, (items, rows) in enumerate(self.train.batches(batches)):
            index = torch.from_numpy(rows).to(device, non_blocking=True)
            x = items.to(device, non_blocking=True)
            observed = torch.from_numpy(self.train_labels.rows(rows)).to(device, non_blocking=True)
            loss: Tensor = self.step.loss(x, observed, rows, index, epoch)
            factor = rate(settings, (epoch - 1 + number / len(batches)) / _epochs(settings))
            for optimizer in self.optimizers:
                set_rate(optimizer, factor)
                optimizer.zero_grad(set_to_none=True)
            self.fabric.backward(loss)
            for optimizer in self.optimizers:
                optimizer.step()
            total += loss.detach() * len(rows)
            self.display.advance(len(rows), loss.detach())
        mean_loss = total.item() / len(order)
        self.spent["train_seconds"] += time.perf_counter() - began
        self.spent["train_images"] += len(order)
        if self.method.wants_pass(epoch, _epochs(settings)):
            self._pass()
        self.method.end_epoch(epoch, _epochs(settings))
        return {"loss": mean_loss}

    def _pass(self) -> None:
        """Give the method the scores of the whole training split."""
        self.display.begin("pass over the training split", len(self.train))
        batch = (self.settings.batch_size or 1) * EVAL_FACTOR
        for logits, rows in score_batches(self.model, self.train, batch, self.fabric.device):
            self.method.take_scores(logits, torch.from_numpy(rows).to(self.fabric.device))
            self.display.advance(len(rows))

    def _validate(self, epoch: int, line: dict[str, Any]) -> None:
        logits = self._logits(self.val, "validation")
        figure = score(logits, self.val_truth, _selection(self.settings))
        self.run.write_scores(f"val-{epoch:02d}", logits)
        self.history.append({"epoch": epoch, **line, "val_map": figure})
        self.run.write_history(self.history)
        better = epoch > 0 and (not self.best or figure > self.best["val_map"])
        if better:
            self.best = {"epoch": epoch, "val_map": figure}
            info = record.model_info(self.experiment, self.settings, self.options, self.classifier, self.best)
            save_model(self.run.best, self.classifier, info)
        if epoch:
            mark = "  best" if better else ""
            name = "val mAP" if self.settings.selection == "complete" else "val estimate"
            self.display.line(f"epoch {epoch:>2}  loss {line['loss']:.4f}  {name} {figure:.2f}{mark}")

    def _logits(self, feed: Feed, what: str) -> Any:
        self.display.begin(what, len(feed))
        batch = (self.settings.batch_size or 1) * EVAL_FACTOR
        return predict_logits(self.model, feed, batch, self.fabric.device, self.display.advance)

    def _should_stop(self) -> bool:
        drop = self.settings.patience_drop
        return drop is not None and bool(self.best) and self.history[-1]["val_map"] < self.best["val_map"] - drop

    def _save(self, epoch: int) -> None:
        self.run.save_checkpoint(
            {
                "epoch": epoch,
                "model": self.classifier.state_dict(),
                "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
                "method": self.method.state_dict(),
                "history": self.history,
                "best": self.best,
                "spent": {**self.spent, "seconds": self.spent["seconds"] + time.perf_counter() - self.started},
            }
        )

    def _restore(self) -> int | None:
        """The last finished epoch; None where nothing is done."""
        state = self.run.load_checkpoint()
        if state is None:
            return None
        self.classifier.load_state_dict(state["model"])
        for optimizer, stored in zip(self.optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(stored)
        self.method.load_state_dict(state["method"])
        self.history, self.best, self.spent = state["history"], state["best"], state["spent"]
        self.display.line(f"going on after epoch {state['epoch']} of {self.settings.epochs}")
        return int(state["epoch"])

    def _finish(self) -> dict[str, Any]:
        tested: dict[str, Any] = {"test_map": None, "per_class_ap": None}
        test = self.experiment.test
        if test is not None:
            best, _ = load_model(self.run.best)
            self.classifier.load_state_dict(best.state_dict())
            logits = self._logits(Feed(test, self.settings.size, cache=self.cache), "test")
            self.run.write_scores("test", logits)
            tested = record.test_figures(logits, test)
        self.spent["seconds"] += time.perf_counter() - self.started
        result = record.result(self.experiment, self.settings, self.options, self.best, tested, self.spent)
        self.run.write_result(result)
        figure = "" if tested["test_map"] is None else f", test mAP {tested['test_map']:.2f}"
        self.display.line(f"chosen epoch {self.best['epoch']}{figure}; {result['seconds']:.0f} s; {self.run.path}")
        return result

    def _headline(self) -> str:
        e, s = self.experiment, self.settings
        counts = f"{len(e.train_rows):,} train, {len(e.val_rows):,} val, {len(e.test) if e.test else 0:,} test"
        model = f"{s.backbone}" if s.head == "linear" else f"{s.backbone} with head {s.head}"
        return f"{e.name}: {counts}, {len(e.classes)} classes; {s.method} on {model}, {self.fabric.device}"


def _model(experiment: Experiment, settings: Settings) -> Classifier:
    x = experiment.observed.x
    features = int(x.shape[1]) if x is not None and x.ndim == 2 else None
    built = str(settings.backbone), len(experiment.classes), str(settings.weights)
    model = Classifier.build(*built, features, str(settings.head))
    if x is not None and features is not None:
        model.standardise(torch.from_numpy(np.ascontiguousarray(x[experiment.train_rows])))
    model.frozen_norm = settings.frozen_norm
    return model


def _example(experiment: Experiment, settings: Settings) -> Tensor:
    """An item of zeros, (1, ...), as training is given them."""
    x = experiment.observed.x
    if x is not None and x.ndim == 2:
        return torch.zeros(1, x.shape[1])
    size = settings.size or (0 if x is None else int(x.shape[-1]))
    return torch.zeros(1, 3, size, size, dtype=torch.uint8)


def _optimizer(model: Classifier, method: losses.Method, settings: Settings) -> torch.optim.Optimizer:
    lr = settings.lr or 0.0
    groups: list[dict[str, Any]] = [
        {"params": list(model.backbone.parameters()), "lr": lr},
        {"params": list(model.head.parameters()), "lr": lr * settings.head_lr},
        *method.parameter_groups(lr * settings.head_lr),
    ]
    return make_optimizer(groups, lr, settings)


def _given(experiment: Experiment, method: str) -> dict[str, Any]:
    """What a method that keeps something for every item is told of the training split."""
    if "items" not in losses.needs(method):
        return {}
    table = experiment.observed.take(experiment.train_rows)
    return {"items": len(table), "classes": len(table.classes), "observed": table}


def _epochs(settings: Settings) -> int:
    return settings.epochs or 1


def _selection(settings: Settings) -> Any:
    return settings.selection or "observed"
