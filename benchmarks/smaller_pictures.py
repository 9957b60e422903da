"""Copy VOC2012 as the recorded runs read it: pictures of 448 x 448 as JPEG of quality 88.

python benchmarks/smaller_pictures.py VOC VOC448    # VOC holds VOCdevkit; existing files are kept
"""

from __future__ import annotations

import argparse
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from PIL import Image

from spml.data.images.decode import decode
from spml.files import replacing

HOME = Path("VOCdevkit") / "VOC2012"
SIZE, QUALITY = 448, 88


def shrink(picture: Path, out: Path) -> None:
    if out.exists():
        return
    pixels = decode(picture, SIZE).permute(1, 2, 0).numpy()
    with replacing(out) as beside:
        Image.fromarray(pixels).save(beside, "JPEG", quality=QUALITY)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    source, out = options.source / HOME, options.out / HOME
    shutil.copytree(source / "ImageSets" / "Main", out / "ImageSets" / "Main", dirs_exist_ok=True)
    lists = [source / "ImageSets" / "Main" / f"{split}.txt" for split in ("train", "val")]
    names = [
        line.split()[0] for path in lists for line in path.read_text().splitlines() if line.strip()
    ]
    files = [f"{name}.jpg" for name in names]
    with ThreadPoolExecutor() as pool:
        for _ in pool.map(
            lambda file: shrink(source / "JPEGImages" / file, out / "JPEGImages" / file), files
        ):
            pass
    print(f"{len(files)} pictures in {out}")


if __name__ == "__main__":
    main()
