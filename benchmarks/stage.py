"""Prepare VOC2012 and COCO for the studies: pictures of one size, a table, and parts to carry.

python benchmarks/stage.py voc  --mirror DIR --out data/voc [--size 448]
python benchmarks/stage.py coco --mirror DIR --lists DIR --out data/coco [--train 22000 --test 8000]
python benchmarks/stage.py features data/voc --pixels 224       # writes data/voc/features.npz
python benchmarks/stage.py parts data/voc                       # tar files of at most 60 MB

A mirror is the git directory that holds the pictures; METHODS.md section 16 names the repositories.
A staged folder holds pictures/ and table.csv (image, label, split) with complete labels.
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

VOC_COMMIT = "105e09565349e40f83a49463ccff609f7ffb254c"
VOC_FOLDER = f"{VOC_COMMIT}:VOCdevkit/VOC2012"
COCO_LISTS = "dcfa4d5:dataset/coco_train_full.txt"
COCO_HASHES = {  # first 16 digits of the SHA-256 of a whole or shortened list
    ("train", 65_724): "e35d21f1b05128ea",
    ("test", 16_357): "53e1e3fd0172f82e",
    ("train", 22_000): "dd33c8fcf14bef6c",
    ("test", 8_000): "9e21ae2a45be3890",
}
COCO_NAMES = [
    "person",
    "bicycle",
    "car",
    "motorcycle",
    "airplane",
    "bus",
    "train",
    "truck",
    "boat",
    "traffic light",
    "fire hydrant",
    "stop sign",
    "parking meter",
    "bench",
    "bird",
    "cat",
    "dog",
    "horse",
    "sheep",
    "cow",
    "elephant",
    "bear",
    "zebra",
    "giraffe",
    "backpack",
    "umbrella",
    "handbag",
    "tie",
    "suitcase",
    "frisbee",
    "skis",
    "snowboard",
    "sports ball",
    "kite",
    "baseball bat",
    "baseball glove",
    "skateboard",
    "surfboard",
    "tennis racket",
    "bottle",
    "wine glass",
    "cup",
    "fork",
    "knife",
    "spoon",
    "bowl",
    "banana",
    "apple",
    "sandwich",
    "orange",
    "broccoli",
    "carrot",
    "hot dog",
    "pizza",
    "donut",
    "cake",
    "chair",
    "couch",
    "potted plant",
    "bed",
    "dining table",
    "toilet",
    "tv",
    "laptop",
    "mouse",
    "remote",
    "keyboard",
    "cell phone",
    "microwave",
    "oven",
    "toaster",
    "sink",
    "refrigerator",
    "book",
    "clock",
    "vase",
    "scissors",
    "teddy bear",
    "hair drier",
    "toothbrush",
]
PART_BYTES = 50_000_000  # with the working tree less than a call carries

Entry = tuple[str, list[str], str]  # name, labels, split


def blobs(mirror: Path, names: Sequence[str]) -> Iterator[bytes]:
    """Yield the content of the named objects of a git directory, in order."""
    command = ["git", "-C", str(mirror), "cat-file", "--batch"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for name in names:
            process.stdin.write(f"{name}\n".encode())
            process.stdin.flush()
            header = process.stdout.readline().split()
            if len(header) != 3:
                raise SystemExit(f"{mirror} has no {name}")
            yield process.stdout.read(int(header[2]))
            process.stdout.read(1)
        process.stdin.close()


def objects(mirror: Path, folder: str) -> dict[str, str]:
    """Return the object of each file in a folder of a commit, by the file's name."""
    command = ["git", "-C", str(mirror), "ls-tree", folder]
    listed = subprocess.check_output(command, text=True)
    return {line.split("\t")[1]: line.split()[2] for line in listed.splitlines()}


def voc_entries(mirror: Path) -> list[Entry]:
    """Read the official lists; as in the protocol, only objects marked 1 are labels."""
    lists = objects(mirror, f"{VOC_FOLDER}/ImageSets/Main")
    classes = sorted(name[:-10] for name in lists if name.endswith("_train.txt"))
    entries: list[Entry] = []
    for split, file in (("train", "train"), ("test", "val")):
        labels: dict[str, list[str]] = {}
        pages = blobs(mirror, [lists[f"{label}_{file}.txt"] for label in classes])
        for label, page in zip(classes, pages, strict=True):
            for line in page.decode().splitlines():
                name, mark = line.split()
                labels.setdefault(name, []).extend([label] if mark == "1" else [])
        entries += [(name, labels[name], split) for name in sorted(labels)]
    return entries


def coco_entries(lists: Path, lengths: dict[str, int | None]) -> list[Entry]:
    """Read the labels of train2014 and split them by the hash of the name; check the lists."""
    (text,) = blobs(lists, [COCO_LISTS])
    labels = {}
    for line in text.decode().splitlines():
        name, _, numbers = line.partition(",")
        labels[f"{int(name.strip()[-16:-4]):012d}"] = sorted(map(int, numbers.split()))
    order = sorted(labels, key=_coco_key)
    entries: list[Entry] = []
    for split in ("train", "test"):
        names = [name for name in order if (_coco_key(name) % 5 == 0) == (split == "test")]
        names = names[: lengths[split]]
        lines = (" ".join([f"{name}.jpg", *map(str, labels[name])]) for name in names)
        digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
        expected = COCO_HASHES.get((split, len(names)))
        if expected is not None and not digest.startswith(expected):
            raise SystemExit(f"the {split} list has SHA-256 {digest[:16]}, not {expected}")
        entries += [(name, [COCO_NAMES[c] for c in labels[name]], split) for name in names]
    return entries


def _coco_key(name: str) -> int:
    return int(hashlib.md5(f"{name}.jpg".encode()).hexdigest(), 16)


def write(entries: Sequence[Entry], mirror: Path, folder: str, out: Path, size: int | None) -> None:
    """Write the pictures of a folder of the mirror, resized if a size is given, and the table."""
    files = objects(mirror, folder)
    contents = blobs(mirror, [files[f"{name}.jpg"] for name, _, _ in entries])
    pictures = out / "pictures"
    pictures.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        waiting = []
        for (name, _, _), content in zip(entries, contents, strict=True):
            waiting.append(pool.submit(_write_picture, pictures / f"{name}.jpg", content, size))
            if len(waiting) >= 256:
                waiting.pop(0).result()
        for each in waiting:
            each.result()
    with (out / "table.csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "label", "split"])
        for name, labels, split in entries:
            table.writerow([f"pictures/{name}.jpg", "|".join(labels), split])


def _write_picture(path: Path, content: bytes, size: int | None) -> None:
    if size is not None:
        from PIL import Image

        with Image.open(io.BytesIO(content)) as picture:
            resized = picture.convert("RGB").resize((size, size), Image.Resampling.BILINEAR)
        buffer = io.BytesIO()
        resized.save(buffer, "JPEG", quality=88)
        content = buffer.getvalue()
    path.write_bytes(content)


def write_features(staged: Path, pixels: int, backbone: str, weights: str) -> None:
    """Write pooled ImageNet features of every picture, with the labels and splits."""
    import numpy as np
    import torch

    from spml.data import load
    from spml.data.images.loader import Feed
    from spml.model import Classifier

    experiment = load(staged / "table.csv", labels="complete")
    assert experiment.complete is not None
    assert experiment.test is not None
    tables = {"train": experiment.complete, "test": experiment.test}
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Classifier.build(backbone, len(experiment.classes), weights).eval().to(device)
    parts = []
    for table in tables.values():
        for x, rows in Feed(table, pixels).in_order(64):
            with torch.inference_mode():
                parts.append(model.pool(model.features(x.to(device))).cpu().numpy())
            print(f"{int(rows[-1]) + 1:,} of {len(table):,}", end="\r", flush=True)
    np.savez(
        staged / "features.npz",
        x=np.concatenate(parts).astype(np.float16),
        labels=np.concatenate([table.labels for table in tables.values()]),
        classes=np.array(experiment.classes),
        split=np.repeat(list(tables), [len(table) for table in tables.values()]),
    )


def write_parts(staged: Path) -> None:
    """Pack the pictures into tar files that one call can carry; the table is in the first."""
    files = [staged / "table.csv", *sorted((staged / "pictures").iterdir())]
    groups: list[list[Path]] = [[]]
    held = 0
    for file in files:
        size = file.stat().st_size + 1024
        if held + size > PART_BYTES:
            groups.append([])
            held = 0
        groups[-1].append(file)
        held += size
    for number, group in enumerate(groups):
        with tarfile.open(staged / f"part-{number:02d}.tar", "w") as archive:
            for file in group:
                archive.add(file, file.relative_to(staged))
    print(f"{len(groups)} parts in {staged}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    voc = commands.add_parser("voc")
    coco = commands.add_parser("coco")
    for command in (voc, coco):
        command.add_argument("--mirror", type=Path, required=True)
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--size", type=int)
    coco.add_argument("--lists", type=Path, required=True)
    coco.add_argument("--train", type=int)
    coco.add_argument("--test", type=int)
    features = commands.add_parser("features")
    features.add_argument("--pixels", type=int, default=224)
    features.add_argument("--backbone", default="tf_efficientnet_lite0")
    features.add_argument("--weights", default="pretrained")
    parts = commands.add_parser("parts")
    for command in (features, parts):
        command.add_argument("staged", type=Path)
    options = parser.parse_args()

    if options.command == "voc":
        entries = voc_entries(options.mirror)
        write(entries, options.mirror, f"{VOC_FOLDER}/JPEGImages", options.out, options.size)
    elif options.command == "coco":
        entries = coco_entries(options.lists, {"train": options.train, "test": options.test})
        write(entries, options.mirror, "HEAD:train2017", options.out, options.size)
    elif options.command == "features":
        write_features(options.staged, options.pixels, options.backbone, options.weights)
    else:
        write_parts(options.staged)


if __name__ == "__main__":
    main()
