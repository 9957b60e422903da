"""Names of the files and folders of a run folder; no other package spells them."""

from spml.model.store import BEST, CARD, INFO, WEIGHTS

CONFIG = "config.json"
HISTORY = "history.jsonl"
RESULT = "result.json"
OBSERVED = "observed.npz"
LABELS = "labels.npz"
CHECKPOINT = "last.ckpt"
CALIBRATION = "calibration.json"
REPORT = "report.html"
EVALUATIONS = "eval-*.json"  # an asterisk stands for the split
SCORES = "scores"
TENSORBOARD = "tensorboard"

FILES = (CONFIG, HISTORY, RESULT, OBSERVED, LABELS, CHECKPOINT, REPORT, CALIBRATION)
FOLDERS = (BEST, SCORES, TENSORBOARD)
WRITTEN = (*FILES, *(f"{BEST}/{name}" for name in (WEIGHTS, INFO, CARD)), f"{SCORES}/*.npz")
