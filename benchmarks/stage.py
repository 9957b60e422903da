"""Prepare VOC2012 and COCO for the studies: pictures of one size, a table, and parts to carry.

python benchmarks/stage.py voc  --mirror DIR --out data/voc [--size 448]
python benchmarks/stage.py coco --mirror DIR --lists DIR --out data/coco
python benchmarks/stage.py official data/coco --out COCO [--train 22000 --test 8000]
python benchmarks/stage.py features data/voc --pixels 224       # writes data/voc/features.npz
python benchmarks/stage.py parts data/coco --out PARTS [--train 22000 --test 8000]

A mirror is the git directory that holds the pictures: for COCO at 256 px that of
github.com/hai4h/cnn-edge-detection, with github.com/xinyu1205/robust-loss-mlml for --lists.
A staged folder holds pictures/ and table.csv (image, label, split) with complete labels. `official`
writes COCO as `spml train coco` reads it, with links to the staged pictures; `parts` packs a staged
folder into tar files, for a machine that takes a few megabytes at a time (tar -xf to unpack).
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import io
import json
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
COCO_NAMES = """
person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light, fire
hydrant, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear,
zebra, giraffe, backpack, umbrella, handbag, tie, suitcase, frisbee, skis, snowboard, sports
ball, kite, baseball bat, baseball glove, skateboard, surfboard, tennis racket, bottle, wine
glass, cup, fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot
dog, pizza, donut, cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop,
mouse, remote, keyboard, cell phone, microwave, oven, toaster, sink, refrigerator, book, clock,
vase, scissors, teddy bear, hair drier, toothbrush
"""
COCO_CLASSES = [" ".join(name.split()) for name in COCO_NAMES.split(",")]
COCO_GAPS = {12, 26, 29, 30, 45, 66, 68, 69, 71, 83}  # ids from 1 to 90 without a category
COCO_FOLDERS = {"train": "train2014", "test": "val2014"}  # split of the table: official list

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
        chosen = [(name, [COCO_CLASSES[c] for c in labels[name]], split) for name in names]
        check_list(chosen, split)
        entries += chosen
    return entries


def check_list(entries: Sequence[Entry], split: str) -> None:
    """Compare the digest of a list of COCO with the published one, if its length has one."""
    column = {name: str(number) for number, name in enumerate(COCO_CLASSES)}
    lines = (" ".join([f"{name}.jpg", *map(column.get, labels)]) for name, labels, _ in entries)
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()
    expected = COCO_HASHES.get((split, len(entries)))
    if expected is not None and not digest.startswith(expected):
        raise SystemExit(f"the {split} list has SHA-256 {digest[:16]}, not {expected}")
    print(f"{split}: {len(entries):,} pictures, SHA-256 {digest[:16]}")


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


def read_table(staged: Path, lengths: dict[str, int | None]) -> list[Entry]:
    """Read the first entries of each split of a staged table."""
    with (staged / "table.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    entries: list[Entry] = []
    for split in COCO_FOLDERS:
        own = [row for row in rows if row["split"] == split][: lengths[split]]
        entries += [
            (Path(row["image"]).stem, [n for n in row["label"].split("|") if n], split)
            for row in own
        ]
    return entries


def write_official(staged: Path, entries: Sequence[Entry], out: Path) -> None:
    """Write COCO as published: an instances file and a folder of pictures for each list.

    The pictures are links to the staged ones. The held-out list stands in for val2014, whose labels
    are not available; its pictures keep their names of train2014. An instance has no box.
    """
    ids = [number for number in range(1, 91) if number not in COCO_GAPS]
    category = dict(zip(COCO_CLASSES, ids, strict=True))
    categories = [{"id": number, "name": name} for name, number in category.items()]
    (out / "annotations").mkdir(parents=True, exist_ok=True)
    for split, folder in COCO_FOLDERS.items():
        own = [entry for entry in entries if entry[2] == split]
        check_list(own, split)
        (out / folder).mkdir(exist_ok=True)
        images, annotations = [], []
        for name, labels, _ in own:
            file = f"COCO_train2014_{name}.jpg"
            images.append({"id": int(name), "file_name": file})
            for label in labels:
                about = {"image_id": int(name), "category_id": category[label]}
                annotations.append({"id": len(annotations) + 1, **about})
            if not (out / folder / file).exists():
                (out / folder / file).hardlink_to(staged / "pictures" / f"{name}.jpg")
        content = {"images": images, "annotations": annotations, "categories": categories}
        path = out / "annotations" / f"instances_{folder}.json"
        path.write_text(json.dumps(content))


def write_parts(staged: Path, entries: Sequence[Entry], out: Path, megabytes: int) -> None:
    """Pack the pictures of the entries into tar files; the table is in the first."""
    pictures = sorted(staged / "pictures" / f"{name}.jpg" for name, _, _ in entries)
    files = [staged / "table.csv", *pictures]
    groups: list[list[Path]] = [[]]
    held = 0
    for file in files:
        size = file.stat().st_size + 1024
        if held + size > megabytes * 1_000_000:
            groups.append([])
            held = 0
        groups[-1].append(file)
        held += size
    out.mkdir(parents=True, exist_ok=True)
    for number, group in enumerate(groups):
        with tarfile.open(out / f"part-{number:02d}.tar", "w") as archive:
            for file in group:
                archive.add(file, file.relative_to(staged))
    print(f"{len(groups)} parts in {out}")


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
    features = commands.add_parser("features")
    features.add_argument("--pixels", type=int, default=224)
    features.add_argument("--backbone", default="tf_efficientnet_lite0")
    features.add_argument("--weights", default="pretrained")
    official = commands.add_parser("official")
    parts = commands.add_parser("parts")
    parts.add_argument("--megabytes", type=int, default=46)
    for command in (features, official, parts):
        command.add_argument("staged", type=Path)
    for command in (official, parts):
        command.add_argument("--out", type=Path, required=True)
    for command in (coco, official, parts):
        command.add_argument("--train", type=int, help="length of the list; default: all")
        command.add_argument("--test", type=int, help="length of the list; default: all")
    options = parser.parse_args()

    if options.command == "voc":
        entries = voc_entries(options.mirror)
        write(entries, options.mirror, f"{VOC_FOLDER}/JPEGImages", options.out, options.size)
        return
    if options.command == "features":
        write_features(options.staged, options.pixels, options.backbone, options.weights)
        return
    lengths = {"train": options.train, "test": options.test}
    if options.command == "coco":
        entries = coco_entries(options.lists, lengths)
        write(entries, options.mirror, "HEAD:train2017", options.out, options.size)
    elif options.command == "official":
        write_official(options.staged, read_table(options.staged, lengths), options.out)
    else:
        entries = read_table(options.staged, lengths)
        write_parts(options.staged, entries, options.out, options.megabytes)


if __name__ == "__main__":
    main()
