"""The scikit-learn way: an estimator that learns many labels per item from one known label per item."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from spml import metrics
from spml.data import Experiment, LabelTable, SparseLabels
from spml.errors import DataError, UserError
from spml.model import load_model
from spml.model.store import write_info
from spml.train import Settings, fit, predict_logits
from spml.train.card import write_card
from spml.train.state import preserved_random_state
from spml.use.estimator import inputs as inputs
from spml.use.evaluate import ARRAYS, PICTURES
from spml.use.stored_model import feed_for, own_device

Probabilities = npt.NDArray[np.float32]
TURN = threading.RLock()  # to train: all threads of a process draw from the same random numbers
FEATURES_LR = 3e-4
FEATURES_BATCH = 16, 128  # with steps of 50 an epoch in between: benchmarks/estimator.py


class SinglePositiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-label classifier that is trained from items of which one label is known.

    X is an array or tensor of features (n, d), a list of paths of pictures, or uint8 pictures (n, 3, h, w) or
    (n, h, w, 3). y is a class per item (the usual case), a list of classes per item, or (n, C) of 1 (positive), 0
    (unknown) and -1 (negative), dense or sparse. Items without any label are allowed among others.

    Args:
        method: by name, see `spml.losses.names()`; or package.module:function.
        options: of the method; what is not given has its default.
        backbone: "tiny", "linear" or any timm model; None: "linear" for features, "resnet50" for pictures.
        weights: "none", "pretrained" or a file; None: pretrained where there are such.
        size: height and width pictures are resized to; None: 448, arrays keep theirs, or take the longer side.
        epochs: None: 30 for features, 10 for pictures.
        batch_size: None: for features a fiftieth of the rows, from 16 to 128; 16 for pictures.
        lr: learning rate of the backbone, a tenth of a linear head's; None: 3e-4 for features, 5e-5 for pictures.
        validation: share of the rows that choose the epoch; None trains on all rows and takes the last epoch.
        selection: labels that choose it, "observed" or "complete"; None: complete where all of them are known.
        classes: all classes in order, where y may lack some; None: those of y, or its columns.
        thresholds: probability from which a class is predicted: a number, or one per class; None: 0.5.
        random_state: of split, initialisation and order.
        device: "auto", "cpu", "cuda" or "mps".
        folder: where the run is kept, with history and model card; None: nowhere.
        overwrite: replace the run that is in the folder.
        verbose: show progress.

    Attributes:
        classes_: names or numbers, in the order of the columns of all that is predicted.
        thresholds_: one per class.
        result_: what result.json of the run holds.
        model_: the network.
    """

    def __init__(
        self,
        method: str = "gr",
        *,
        options: Mapping[str, Any] | None = None,
        backbone: str | None = None,
        weights: str | None = None,
        size: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        validation: float | None = 0.2,
        selection: str | None = None,
        classes: Iterable[Any] | None = None,
        thresholds: float | Iterable[float] | None = None,
        random_state: Any = None,
        device: str = "auto",
        folder: str | Path | None = None,
        overwrite: bool = False,
        verbose: bool = False,
    ) -> None:
        self.method, self.options = method, options
        self.backbone, self.weights, self.size = backbone, weights, size
        self.epochs, self.batch_size, self.lr = epochs, batch_size, lr
        self.validation, self.selection = validation, selection
        self.classes, self.thresholds, self.random_state = classes, thresholds, random_state
        self.device, self.folder, self.overwrite, self.verbose = device, folder, overwrite, verbose

    def fit(self, X: Any, y: Any) -> SinglePositiveClassifier:
        """Train; every entry of y that is 0 is taken as unknown, and by the method "full" as absent."""
        names, known = inputs.labels(y, self.classes)
        items = self._items(X, reset=True)
        if len(items) != known.shape[0]:
            counts = f"{len(items)} in X, {known.shape[0]} in y"
            raise DataError(f"Found input variables with inconsistent numbers of samples: {counts}")
        self._check_labels(names, known)
        thresholds = self._thresholds(len(names))
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        experiment = self._experiment(inputs.table(items, names, known), seed)
        settings = self._settings(experiment, seed)
        if (
            self.folder is not None
            and not self.overwrite
            and (Path(self.folder) / "config.json").exists()
        ):
            raise UserError(
                f"{self.folder} already holds a run; give overwrite=True or another folder"
            )
        place = (
            TemporaryDirectory(prefix="spml-") if self.folder is None else nullcontext(self.folder)
        )
        with TURN, place as parent, preserved_random_state():
            folder = Path(parent) / "run" if self.folder is None else Path(parent)
            how = {"options": self.options, "overwrite": self.overwrite, "quiet": not self.verbose}
            self.result_ = fit(experiment, settings, folder, **how)
            self.model_, self.info_ = load_model(folder)
            if self.thresholds is not None:  # what reads the folder tags as `predict` does
                self.info_ = replace(self.info_, thresholds=thresholds.tolist())
                write_info(folder, self.info_)
                write_card(folder)
        self.classes_, self.thresholds_ = names, thresholds
        return self

    def decision_function(self, X: Any) -> Probabilities:
        """Logits (n, C); their order is what average precision ranks."""
        check_is_fitted(self)
        items = self._items(X, reset=False)
        features = self.info_.preprocessing["features"]
        if (features is None) != (isinstance(items, list) or items.ndim == 4):
            kind = "pictures" if features is None else "features"
            raise UserError(f"the model was trained on {kind}; X is something else")
        empty = SparseLabels.from_dense(np.zeros((len(items), 1), np.int8))
        rows = inputs.table(items, np.array(["any"]), empty)
        feed = feed_for(rows, self.info_)
        device = self.device if self.device != "auto" else own_device()
        try:
            logits: Probabilities = predict_logits(
                self.model_.to(device), feed, 4096 if features else 64, device
            )
        finally:
            self.model_.to("cpu")
        return logits

    def predict_proba(self, X: Any) -> Probabilities:
        """Probabilities (n, C), of each class by itself: rows do not sum to 1."""
        logits = torch.from_numpy(self.decision_function(X))
        probabilities: Probabilities = self.info_.calibrate()(logits).sigmoid().numpy()
        return probabilities

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """1 where a class reaches its threshold, 0 elsewhere: (n, C)."""
        return (self.predict_proba(X) >= self.thresholds_).astype(np.int64)

    def score(self, X: Any, y: Any) -> float:
        """Mean average precision over the classes that y has positives of, in [0, 1].

        Entries of y that are 0 count as absent, or are left out as unknown where y also holds -1. Given single
        positives, as in cross-validation on one's training labels, it is an estimate for comparing models only.
        """
        logits = self.decision_function(X)
        _, known = inputs.labels(y, self.classes_)
        truth = known.rows(np.arange(known.shape[0]))
        if not (truth == -1).any():
            truth = np.where(truth == 1, 1, -1)
        present = (truth == 1).any(axis=0)
        if not present.any():
            raise DataError(inputs.NO_LABEL)
        return float(metrics.mean_average_precision(logits[:, present], truth[:, present]))

    def _items(self, X: Any, *, reset: bool) -> list[str] | npt.NDArray[Any]:
        """Paths, uint8 pictures or float32 features."""
        given = inputs.plain(X)
        listed = inputs.paths(given)
        if listed is not None:
            return listed
        found = inputs.pictures(given)
        if found is None:
            found = validate_data(self, X=given, reset=reset, dtype=np.float32, order="C")
        return found

    def _check_labels(self, names: npt.NDArray[Any], known: SparseLabels) -> None:
        if not known.counts(1).any():
            raise DataError(inputs.NO_LABEL)
        if known.shape[0] < 2:
            raise DataError(f"n_samples = {known.shape[0]}; at least 2 are needed")
        if len(names) == 1 and known.counts(1)[0] == known.shape[0]:
            raise DataError(
                f"y has one class, {names.item()!r}, in every item: nothing to tell apart; give 2 or more"
            )

    def _thresholds(self, count: int) -> npt.NDArray[np.float32]:
        given = np.asarray(0.5 if self.thresholds is None else self.thresholds, np.float32)
        if (
            given.ndim > 1
            or (given.ndim == 1 and len(given) != count)
            or not ((given >= 0) & (given <= 1)).all()
        ):
            raise UserError(
                f"thresholds={self.thresholds!r}: give a probability, or one for each of {count} classes"
            )
        return np.broadcast_to(given, (count,)).copy()

    def _experiment(self, observed: LabelTable, seed: int) -> Experiment:
        train_rows, val_rows = inputs.set_aside(observed.sparse, self.validation, seed)
        complete = None
        if self.method == "full":
            complete = observed.with_labels(observed.sparse.positives(-1))
        return Experiment(
            name=ARRAYS if observed.x is not None else PICTURES,
            classes=observed.classes,
            observed=observed,
            complete=complete,
            train_rows=train_rows,
            val_rows=val_rows,
            test=None,
            label_kind="observed" if complete is None else "complete",
            observation={"model": "given"},
        )

    def _settings(self, experiment: Experiment, seed: int) -> Settings:
        batch_size, lr, x = self.batch_size, self.lr, experiment.observed.x
        if x is not None and x.ndim == 2:
            batch_size = batch_size or int(np.clip(len(x) // 50, *FEATURES_BATCH))
            lr = lr or FEATURES_LR
        selection = self.selection or (None if len(experiment.val_rows) else "observed")
        return Settings(
            **{
                name: getattr(self, name)
                for name in ("method", "backbone", "weights", "size", "epochs")
            },
            batch_size=batch_size,
            lr=lr,
            selection=selection,  # type: ignore[arg-type]
            seed=seed,
            split_seed=seed,
            accelerator=self.device,
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags
