# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     name: python3
#     display_name: Python 3
# ---
"""Compare a new loss with 20 baselines: one function, one command, one table for the paper.

python examples/new_loss.py [FOLDER] [--short]
"""

# %% [markdown]
# # A new loss against 20 baselines
#
# You have an idea for a loss and want to know whether it is worth a paper. This script writes the
# loss as one function, trains it and 20 published methods on the same data with `spml bench`, and
# prints the LaTeX table and the differences with their intervals.
#
# It needs about 40 seconds on two cores. That is enough to see the way, and not enough for a
# claim: the last cell lists what a paper needs.

# %%
import argparse
import csv
import inspect
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

from spml.data.readers.digits import Scenes, read_digits

parser = argparse.ArgumentParser(description="A new loss against 20 baselines.")
parser.add_argument("folder", type=Path, nargs="?", default=Path("build/examples/new_loss"))
parser.add_argument("--short", action="store_true", help="three baselines and one epoch")
options = parser.parse_args([] if "ipykernel" in sys.modules else None)  # a notebook has none

OUT = options.folder.resolve()
OUT.mkdir(parents=True, exist_ok=True)

# %% [markdown]
# ## The loss
#
# Assume-negative takes every unknown label as absent. Most of these labels are absent, but a few
# are not, and the model soon gives just those a high probability. The idea: **spare the most
# probable unknown label of each picture**, a little more in each epoch.
#
# A loss receives logits and observed labels (1 known positive, 0 unknown, -1 known negative),
# both of the shape (items, classes). `epoch` and `epochs` arrive because the function names them.
# All other arguments are options: `spml bench --set mine:spare.share=0.5` sets one.


# %%
def spare(logits, observed, *, epoch, epochs, share=1.0):
    """Assume negative, but spare the most probable unknown label of each item, more each epoch."""
    loss = F.softplus(torch.where(observed == 1, -logits, logits))
    unknown = logits.detach().masked_fill(observed != 0, -torch.inf)
    weight = torch.ones_like(loss)
    weight.scatter_(1, unknown.argmax(1, keepdim=True), 1 - share * epoch / epochs)
    return (weight * loss).mean()


# %% [markdown]
# Two checks before any training. In the first, the gradient on a spared label is zero in the last
# epoch. In the second, value and gradient are finite for logits that no exponential survives.

# %%
observed = torch.tensor([[1.0, 0.0, 0.0]])
logits = torch.tensor([[0.0, 2.0, -1.0]], requires_grad=True)
spare(logits, observed, epoch=8, epochs=8).backward()
print("gradient in the last epoch:", [round(value, 3) for value in logits.grad[0].tolist()])
assert logits.grad[0, 1] == 0 and logits.grad[0, 0] < 0 < logits.grad[0, 2]

logits = torch.tensor([[-1e4, 1e4, 90.0]], requires_grad=True)
spare(logits, observed, epoch=4, epochs=8).backward()
assert logits.grad.isfinite().all()

# %% [markdown]
# `spml` finds a loss by `module:function`, so the function goes into a file.

# %%
source = inspect.getsource(spare)
(OUT / "mine.py").write_text(f"import torch\nimport torch.nn.functional as F\n\n\n{source}")

# %% [markdown]
# ## The data
#
# `digits` composes scenes of scikit-learn's handwritten digits, one to five in a scene. Here the
# scenes are smaller and fewer than in `spml bench digits`, to stay below a minute. The labels are
# complete: `spml bench` hides all but one positive of each training picture, the same one for all
# methods, and tests with all of them.

# %%
counts = (200, 60, 100) if options.short else (900, 150, 500)
tables = read_digits(Scenes(sizes=counts, size=16))
np.savez(
    OUT / "scenes.npz",
    x=np.concatenate([table.x for table in tables.values()]),
    labels=np.concatenate([table.labels for table in tables.values()]),
    classes=np.array(tables["train"].classes),
    split=np.repeat(list(tables), [len(table) for table in tables.values()]),
)

# %% [markdown]
# ## Training
#
# One command trains 21 methods with two seeds each, two runs at a time. All have the same
# backbone, epochs and learning rate. Interrupt it at any time: the same command resumes.
#
# Not among the 20 are `full`, which sees every label, and the five methods that cost most.

# %%
BASELINES = [
    *("an", "an_ls", "wan", "epr", "role", "focal", "asl", "hill", "splc", "ll_r"),
    *("ll_ct", "ll_cp", "boostlu", "em", "em_apl", "en", "gce", "sce", "taylor_ce", "gr"),
]
if options.short:
    BASELINES = ["an", "em", "gr"]


def spml(*words):
    """Run a command of spml in the output folder, and return what it prints."""
    print("$ spml", *words)
    command = [sys.executable, "-m", "spml", *words]
    return subprocess.run(command, cwd=OUT, check=True, stdout=subprocess.PIPE, text=True).stdout


methods = ",".join([*BASELINES, "mine:spare"])
seeds = "1" if options.short else "2"
protocol = f"--backbone tiny --epochs {1 if options.short else 8} --batch-size 32 --lr 0.01"
print(
    spml(
        *("bench", "scenes.npz", "--labels", "complete", "--methods", methods),
        *protocol.split(),
        *("--flip", "False"),  # a mirrored digit is another sign
        *("--seeds", seeds, "--jobs", seeds, "--against", "mine:spare"),
        *("--out", "bench", "--quiet", "--accelerator", "cpu"),
    )
)

# %% [markdown]
# ## The table for the paper
#
# `bench/bench.json` holds every run, and any table can be printed from it again. `--against`
# names the row that all others are compared with.

# %%
latex = spml("bench", "--from", "bench/bench.json", "--against", "mine:spare", "--format", "tex")
print(latex)

# %% [markdown]
# ## The differences with their intervals
#
# Each line is the test mAP of a baseline minus that of `spare`, in points, over the seeds of
# both. The test pictures are drawn again 1,000 times with replacement; the interval holds 95 % of
# the differences. It covers the choice of test pictures and **not** the choice of seed: for that,
# look at the standard deviations.

# %%
with (OUT / "bench" / "table.csv").open(newline="") as file:
    rows = [row for row in csv.DictReader(file) if row["difference"]]
counts = {"above": 0, "below": 0, "not distinguished from": 0}
for row in sorted(rows, key=lambda row: -float(row["difference"])):
    difference, low, high = (float(row[name]) for name in ("difference", "low", "high"))
    verdict = "above" if low > 0 else "below" if high < 0 else "not distinguished from"
    counts[verdict] += 1
    print(f"{row['row']:<10} {difference:+6.2f} [{low:+.2f}, {high:+.2f}]  {verdict} spare")
print("baselines:", ", ".join(f"{count} {verdict} spare" for verdict, count in counts.items()))

# %% [markdown]
# ## What a paper needs besides
#
# - **Trained models.** After eight epochs on 900 scenes, methods that learn slowly look bad.
#   Use `spml bench digits --methods ...` for the full scenes and ten epochs, and `voc` or `coco`
#   for photos.
# - **Tuning alike.** All rows had one learning rate. `--grid` gives every row the same number of
#   trials on validation data, also yours if it declares a search space (docs/add-a-method.md).
# - **More seeds.** Two seeds give a standard deviation in name only: use five or more.
# - **No choice by test figures.** If you change the loss after reading this table, the test
#   pictures have become validation pictures.
#
# `spml bench --verify --out bench` recomputes every figure of the table from the stored scores.
