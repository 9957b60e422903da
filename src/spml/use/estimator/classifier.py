"""A scikit-learn estimator that learns many labels per item from one known label per item."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
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
from spml.data.images.loader import Feed
from spml.errors import DataError, UserError
from spml.model import load_model
from spml.model.store import TagRule, write_info
from spml.runs.run import Run
from spml.train import Settings, fit, predict_logits
from spml.train.card import write_card
from spml.train.state import preserved_random_state
from spml.use.estimator import inputs
from spml.use.evaluate import ARRAYS, PICTURES
from spml.use.stored_model import own_device

Probabilities = npt.NDArray[np.float32]
TURN = threading.RLock()  # held in training: threads of a process share the random state


class SinglePositiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-label classifier trained on items with one known label.

    X is an array or tensor of features (n, d), a list of paths of pictures, or uint8 pictures
    (n, 3, h, w) or (n, h, w, 3). y is a class per item (the usual case), a list of classes per
    item, or (n, C) of 1 (positive), 0 (unknown) and -1 (negative), dense or sparse. Items without
    any label are allowed among others.

    Args:
        method: a name of `spml.losses.names()`, package.module:function, or "auto", a race; None:
            "auto".
        options: options of the method; the others keep their defaults.
        backbone: "tiny", "linear" or any timm model; None: "linear" for features,
            "tf_efficientnet_lite0" for pictures.
        weights: "none", "pretrained" or a file; None: pretrained if the backbone has such weights.
        size: height and width pictures are resized to; None: 448, arrays keep theirs, or take the
            longer side.
        epochs: None: 30 for features, 10 for pictures.
        batch_size: None: for features a fiftieth of the rows, from 16 to 128; 16 for pictures.
        lr: learning rate of the backbone, a tenth of a linear head's; None: 2e-4 for features, 5e-5
            for pictures.
        validation: share of the rows that choose the epoch; None trains on all rows and keeps the
            last epoch.
        selection: labels that choose it, "observed" or "complete"; None: complete if all of them
            are known.
        classes: all classes in order, if y may lack some; None: the classes or columns of y.
        thresholds: probability at which a class is predicted, one for all or one per class;
            None: 0.5.
        random_state: seed of split, initialisation and order.
        device: "auto", "cpu", "cuda" or "mps".
        folder: run folder to keep, with history and model card; None keeps none.
        overwrite: replace an existing run in the folder.
        verbose: show progress.

    Attributes:
        classes_: names or numbers, in the order of the predicted columns.
        thresholds_: one per class.
        result_: content of the run's result.json.
        model_: the network.
    """

    def __init__(
        self,
        method: str | None = None,
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
        """Train; a 0 in y is an unknown label, and an absent one for the method "full"."""
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
        if self.folder is not None and not self.overwrite and Run(Path(self.folder)).exists:
            raise UserError(
                f"{self.folder} already holds a run; give overwrite=True or another folder"
            )
        temporary = TemporaryDirectory(prefix="spml-")
        with TURN, temporary as parent, preserved_random_state():
            folder = Path(parent, "run") if self.folder is None else Path(self.folder)
            self.result_ = fit(
                experiment,
                settings,
                folder,
                options=self.options,
                overwrite=self.overwrite,
                quiet=not self.verbose,
            )
            self.model_, self.info_ = load_model(folder)
            if self.thresholds is not None:  # commands on the folder tag as `predict` does
                self.info_ = replace(self.info_, thresholds=thresholds.tolist())
                write_info(folder, self.info_)
                write_card(folder)
        self.classes_, self.thresholds_ = names, thresholds
        return self

    def decision_function(self, X: Any) -> Probabilities:
        """Logits (n, C), which average precision ranks."""
        check_is_fitted(self)
        items = self._items(X, reset=False)
        features = self.info_.preprocessing["features"]
        if (features is None) != (isinstance(items, list) or items.ndim == 4):
            kind = "pictures" if features is None else "features"
            raise UserError(f"the model was trained on {kind}; X is something else")
        empty = SparseLabels.from_dense(np.zeros((len(items), 1), np.int8))
        rows = inputs.table(items, np.array(["any"]), empty)
        feed = Feed(rows, self.info_.preprocessing["size"])
        device = self.device if self.device != "auto" else own_device()
        try:
            logits: Probabilities = predict_logits(
                self.model_.to(device), feed, 4096 if features else 64, device
            )
        finally:
            self.model_.to("cpu")
        return logits

    def predict_proba(self, X: Any) -> Probabilities:
        """Probabilities (n, C) of each class on its own: rows do not sum to 1."""
        logits = torch.from_numpy(self.decision_function(X))
        probabilities: Probabilities = self.info_.calibrate()(logits).sigmoid().numpy()
        return probabilities

    def predict(self, X: Any) -> npt.NDArray[np.int64]:
        """1 for each class that reaches its threshold, 0 for the others: (n, C)."""
        logits = self.decision_function(X)
        rule = TagRule(np.asarray(self.thresholds_, np.float64), self.info_.calibration)
        return rule.tagged(logits).astype(np.int64)

    def score(self, X: Any, y: Any) -> float:
        """Mean average precision over the classes with positives in y, in [0, 1].

        A 0 in y counts as absent, or as unknown and left out if y also holds -1. With single
        positives, as in cross-validation on training labels, the score only serves to compare
        models.
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
        items = inputs.plain(X)
        listed = inputs.paths(items)
        if listed is not None:
            return listed
        array = inputs.pictures(items)
        if array is None:
            array = validate_data(self, X=items, reset=reset, dtype=np.float32, order="C")
        return array

    def _check_labels(self, names: npt.NDArray[Any], known: SparseLabels) -> None:
        if not known.counts(1).any():
            raise DataError(inputs.NO_LABEL)
        if known.shape[0] < 2:
            raise DataError(f"n_samples = {known.shape[0]}; at least 2 are needed")
        if len(names) == 1 and known.counts(1)[0] == known.shape[0]:
            raise DataError(
                f"y has one class, {names.item()!r}, in every item: nothing to distinguish; "
                "give 2 or more"
            )

    def _thresholds(self, count: int) -> npt.NDArray[np.float32]:
        values = np.asarray(0.5 if self.thresholds is None else self.thresholds, np.float32)
        one_each = values.ndim == 0 or (values.ndim == 1 and len(values) == count)
        if not one_each or not ((values >= 0) & (values <= 1)).all():
            raise UserError(
                f"thresholds={self.thresholds!r}: "
                f"give a probability, or one for each of {count} classes"
            )
        return np.broadcast_to(values, (count,)).copy()

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
        selection = self.selection or (None if len(experiment.val_rows) else "observed")
        same = ("method", "backbone", "weights", "size", "epochs", "batch_size", "lr")
        return Settings(
            **{name: getattr(self, name) for name in same},
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
