"""`spml` with the faults that $FAULTS names: python -m tests.faults.program train DATA ..."""

import json
import os

import torch

from spml.cli import entry
from tests.faults.faults import Fault, install

if __name__ == "__main__":
    torch.set_num_threads(1)
    install(Fault(**fault) for fault in json.loads(os.environ.get("FAULTS", "[]")))
    entry()
