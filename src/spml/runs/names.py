"""Names of the files and folders of a run folder; no other package spells them."""

from spml.model.store import BEST, CARD, INFO, WEIGHTS

CONFIG = "config.json"
HISTORY = "history.jsonl"
RESULT = "result.json"
OBSERVED = "observed.npz"
LABELS = "labels.npz"
CONTENTS = "contents.npz"  # hashes of the items, to notice changed data
CHECKPOINT = "last.ckpt"
PREVIOUS = "previous.ckpt"  # until the run is finished
CALIBRATION = "calibration.json"
REPORT = "report.html"
EVALUATIONS = "eval-*.json"  # an asterisk stands for the split
SCORES = "scores"
RACE = "race.json"
RACE_FOLDER = "race"  # candidates of --method auto
RACE_ENTRY = "race"  # of config.json, once a race has a winner
LOGGER = "logger.json"  # the tracker's own name of the run, so that resuming continues it
LOGGER_FOLDERS = ("tensorboard", "csv", "wandb")

FILES = (
    *(CONFIG, HISTORY, RESULT, OBSERVED, LABELS, CHECKPOINT, PREVIOUS, REPORT, CALIBRATION),
    *(RACE, LOGGER, CONTENTS),
)
FOLDERS = (BEST, SCORES, *LOGGER_FOLDERS, RACE_FOLDER)
ADOPTED = (HISTORY, OBSERVED, LABELS, BEST, SCORES, CHECKPOINT)  # of a race's winner, in order
WRITTEN = (*FILES, *(f"{BEST}/{name}" for name in (WEIGHTS, INFO, CARD)), f"{SCORES}/*.npz")
