"""The classifier: backbone, head, storage, scoring and CUDA graphs."""

from spml.model.classifier import Classifier
from spml.model.store import ModelInfo, load_model, save_model

__all__ = ["Classifier", "ModelInfo", "load_model", "save_model"]
