"""Training: `fit` trains a model with `Settings` and writes a run folder."""

from typing import TYPE_CHECKING

from spml import lazy_names
from spml.runs.settings import Settings

if TYPE_CHECKING:
    from spml.model.scoring import predict_logits
    from spml.train.fitting import fit
    from spml.train.loggers import RunLogger

__all__ = ["RunLogger", "Settings", "fit", "predict_logits"]

if not TYPE_CHECKING:
    # Lazy, because importing torch is slow.
    __getattr__ = lazy_names(
        __name__,
        {
            "fit": "spml.train.fitting",
            "predict_logits": "spml.model.scoring",
            "RunLogger": "spml.train.loggers",
        },
    )
