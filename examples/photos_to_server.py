# ---
# jupyter:
#   jupytext:
#     formats: py:percent
#   kernelspec:
#     name: python3
#     display_name: Python 3
# ---
"""From a folder of photos and a spreadsheet of tags to a server that tags new photos.

python examples/photos_to_server.py [FOLDER] [--short]
"""

# %% [markdown]
# # From photos and tags to a server
#
# A company has photos of its shelves. Whoever took one wrote down what the photo was taken for,
# rarely everything that is on it. The company wants every photo tagged with all four products.
#
# The script makes such photos and a spreadsheet with its usual faults, then runs `check`,
# `train`, `calibrate`, `review`, `predict` and `serve`. It needs about 40 seconds on two cores
# and `pip install -e ".[serve]"`. With your own photos, begin at *Check*.

# %%
import argparse
import csv
import json
import shlex
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from spml.cli import main

parser = argparse.ArgumentParser(description="From photos and tags to a server.")
parser.add_argument("folder", type=Path, nargs="?", default=Path("build/examples/photos_to_server"))
parser.add_argument("--short", action="store_true", help="fewer photos and epochs")
options = parser.parse_args([] if "ipykernel" in sys.modules else None)  # a notebook has none

OUT = options.folder.resolve()
SHELF, NEW = OUT / "shelf", OUT / "new"
for folder in (SHELF, NEW):
    folder.mkdir(parents=True, exist_ok=True)


def spml(line):
    """Run a command as typed in a shell, and print its exit code if it is not 0."""
    print(f"\n$ spml {line.replace(str(OUT), '.')}", flush=True)
    code = main(shlex.split(line))
    sys.stdout.flush()
    if code:
        print(f"exit code {code}")
    return code


# %% [markdown]
# ## The photos
#
# Drawings of up to three products each, in any colour and place. `truth` keeps what is on a
# photo. The company does not have it; the script uses it to answer the review and to count
# errors.

# %%
PRODUCTS = ["ball", "bottle", "box", "mug"]
SIZE = 64
rng = np.random.default_rng(0)


def draw(canvas, product, x, y):
    """Draw a product at a place, in a random colour and size."""
    colour = tuple(int(value) for value in rng.integers(40, 256, 3))
    w = int(rng.integers(9, 13))
    if product == "ball":
        canvas.ellipse((x - w, y - w, x + w, y + w), fill=colour)
    elif product == "bottle":
        canvas.rectangle((x - w // 2, y - w // 2, x + w // 2, y + w), fill=colour)
        canvas.rectangle((x - w // 6, y - w, x + w // 6, y), fill=colour)
    elif product == "box":
        canvas.rectangle((x - w, y - w // 2, x + w, y + w // 2), fill=colour)
        canvas.line((x - w, y, x + w, y), fill=(20, 20, 20), width=2)
    else:
        canvas.rectangle((x - w // 2, y - w // 2, x + w // 2, y + w // 2), fill=colour)
        canvas.ellipse((x + w // 4, y - w // 3, x + w, y + w // 3), outline=colour, width=3)


def photo(path):
    """Draw one to three products, save the photo, and return their names."""
    wall = np.clip(rng.normal(rng.integers(60, 200), 12, (SIZE, SIZE, 3)), 0, 255)
    picture = Image.fromarray(wall.astype(np.uint8))
    shown = rng.choice(PRODUCTS, rng.choice([1, 2, 3], p=[0.4, 0.4, 0.2]), replace=False)
    for place, product in zip(rng.permutation(4), shown, strict=False):
        draw(ImageDraw.Draw(picture), product, 17 + 30 * (place % 2), 17 + 30 * (place // 2))
    picture.save(path, quality=90)
    return [str(product) for product in shown]


number = 240 if options.short else 700
truth = {f"{i:04}.jpg": photo(SHELF / f"{i:04}.jpg") for i in range(number)}
new = {f"{i:04}.jpg": photo(NEW / f"{i:04}.jpg") for i in range(100)}

# %% [markdown]
# ## The spreadsheet, as it comes
#
# The columns are called `file` and `tags`, and a comma and a space join several tags. Most rows
# have one tag. One tag has a typo, one photo is cut off after an interrupted copy, and one is
# gone.

# %%
lines = ["file,tags,taken by"]
for name, shown in truth.items():
    tags = shown[: 2 if rng.random() < 0.1 else 1]
    text = ", ".join(tags)
    lines.append(f'shelf/{name},"{text}",{rng.choice(["Ana", "Joe"])}')
lines[40] = 'shelf/0039.jpg,"bottel",Joe'
lines.append('shelf/gone.jpg,"mug",Ana')
(OUT / "export.csv").write_text("\n".join(lines) + "\n")
(SHELF / "0010.jpg").write_bytes((SHELF / "0010.jpg").read_bytes()[:400])
print("\n".join(lines[:5]))

# %% [markdown]
# ## Check
#
# Nothing needs renaming: three flags describe the spreadsheet. `--classes` lists the products, so
# a typo is an error and not a new product.

# %%
COLUMNS = "--image-column file --label-column tags --label-separator ', '"
CLASSES = f"--classes {','.join(PRODUCTS)}"
spml(f"check {OUT}/export.csv {COLUMNS} {CLASSES}")

# %% [markdown]
# Each problem has its line. A person corrects the typo; `--fix` writes a new table without the
# photos that cannot be read, with the usual column names. The original stays as it is.

# %%
export = (OUT / "export.csv").read_text()
(OUT / "export.csv").write_text(export.replace("bottel", "bottle"))
(OUT / "clean.csv").unlink(missing_ok=True)  # of an earlier call of this script
spml(f"check {OUT}/export.csv {COLUMNS} {CLASSES} --fix {OUT}/clean.csv")

# %% [markdown]
# ## Train
#
# `gr` expects that a product may be on a photo although nobody tagged it. A fifth of the rows is
# set aside to choose the epoch, and no complete label is needed.
#
# These settings are for small drawings and a short script. With real photos write only `spml
# train clean.csv --out runs/shelf`: a pretrained network at 448 px, and a race of nine methods in
# place of `--method gr`.

# %%
FAST = (
    f"--method gr --backbone tiny --size 32 --batch-size 16 --epochs {5 if options.short else 30} "
    "--lr 0.01 --schedule one-cycle --accelerator cpu --quiet --overwrite"
)
spml(f"train {OUT}/clean.csv {CLASSES} {FAST} --out {OUT}/runs/first")

# %% [markdown]
# ## Calibrate
#
# A threshold of 0.5 means little for a model that saw one tag a photo. `calibrate` turns the
# scores into probabilities and sets a threshold for each product, from the same incomplete tags.

# %%
spml(f"calibrate {OUT}/runs/first")

# %% [markdown]
# ## Review
#
# `review` lists the tags that are most likely missing, as a page with *yes* and *no* and as a
# CSV. A colleague would answer on the page; the script answers the CSV with the truth. A yes
# becomes a known positive, a no a known negative, and the new table trains the second model.

# %%
COUNT = 60 if options.short else 150
spml(f"review {OUT}/runs/first --count {COUNT} --overwrite --out {OUT}/review")

with (OUT / "review" / "suggestions.csv").open(newline="") as file:
    suggestions = list(csv.DictReader(file))
for row in suggestions:
    row["answer"] = "yes" if row["class"] in truth[Path(row["image"]).name] else "no"
with (OUT / "answers.csv").open("w", newline="") as file:
    writer = csv.DictWriter(file, suggestions[0])
    writer.writeheader()
    writer.writerows(suggestions)
right = sum(row["answer"] == "yes" for row in suggestions)
print(f"{right} of {len(suggestions)} suggested tags were missing")

(OUT / "labels.csv").unlink(missing_ok=True)
spml(f"review {OUT}/runs/first --answers {OUT}/answers.csv --out {OUT}/labels.csv")
spml(f"train {OUT}/labels.csv {CLASSES} {FAST} --out {OUT}/runs/second")
spml(f"calibrate {OUT}/runs/second")

# %% [markdown]
# ## Predict
#
# New photos come in a folder; one of them is broken. `predict` names it, tags the others and ends
# with exit code 2, so that a nightly job notices.

# %%
(NEW / "broken.jpg").write_bytes(b"not a photo")
for run in ("first", "second"):
    spml(f"predict {OUT}/runs/{run} {NEW} --out {OUT}/{run}.csv --overwrite")
print("\n".join((OUT / "second.csv").read_text().splitlines()[:4]))

# %% [markdown]
# How good are the tags? Precision is the share of the model's tags that are right, recall the
# share of the products on the photos that got a tag. What a person wrote down for such photos
# would have perfect precision, and the recall in the first line. The estimates of `calibrate`
# above had no complete label to look at: compare them, they tend to be too good where the model
# is sure and wrong.


# %%
def quality(file):
    """Precision and recall of the tags of the new photos."""
    with file.open(newline="") as rows:
        tags = {Path(row["image"]).name: row["tags"].split("|") for row in csv.DictReader(rows)}
    pairs = {(name, tag) for name, own in tags.items() for tag in own if tag}
    true = {(name, product) for name, shown in new.items() for product in shown}
    return len(pairs & true) / max(len(pairs), 1), len(pairs & true) / len(true)


products = sum(map(len, new.values()))
print(f"one tag a photo:     precision 1.00, recall {len(new) / products:.2f}")
for run, name in (("first", "first model"), ("second", "after the review")):
    precision, recall = quality(OUT / f"{run}.csv")
    print(f"{name + ':':<20} precision {precision:.2f}, recall {recall:.2f}")

# %% [markdown]
# ## Serve
#
# The server has a web page and an HTTP endpoint. It listens on this machine only. Here it gets a
# free port and one photo, and stops as with Ctrl-C.


# %%
def post(address, body):
    """Post a photo, and wait up to half a minute for a server that is still starting."""
    for _ in range(300):
        try:
            with urllib.request.urlopen(f"{address}/api/predict", data=body, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                raise
            time.sleep(0.1)
    raise TimeoutError(f"{address} does not answer")


command = [sys.executable, "-m", "spml", "serve", str(OUT / "runs" / "second"), "--port", "0"]
print("$ spml serve ./runs/second --port 0", flush=True)
server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
try:
    address = server.stdout.readline().split()[1]  # "second: http://127.0.0.1:PORT  (Ctrl-C ..."
    served = post(address, (NEW / "0000.jpg").read_bytes())
finally:
    server.send_signal(signal.SIGINT)
    code = server.wait(30)
print("answer:", json.dumps(served))
print(f"on the photo: {', '.join(new['0000.jpg'])}; the server stopped with exit code {code}")
