"""`python -m spml.data.readers.hub_export FOLDER OUT`: write a dataset's pictures as files.

OUT then holds the pictures, `labels.csv`, and `classes.txt` if the dataset lists its classes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from spml.data.check.fix import write_table
from spml.data.readers.builder import Builder, Reading
from spml.data.readers.folders import PICTURES
from spml.data.readers.hub import fill, is_hub_folder
from spml.errors import DataError, UserError
from spml.files import opening, refuse_existing, write_text

FORMATS = {
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG": ".png",
    b"GIF8": ".gif",
    b"RIFF": ".webp",
    b"BM": ".bmp",
}
USAGE = (
    "give a dataset's folder and the folder to write: "
    "python -m spml.data.readers.hub_export FOLDER OUT"
)


def export(folder: Path, out: Path) -> Path:
    """Write the pictures and labels of a dataset's folder; return the path of the table.

    After an interruption it can be run again.
    """
    if not is_hub_folder(folder):
        raise DataError(
            f"{folder}: no Hugging Face dataset; give a folder of Arrow or Parquet files"
        )
    table = out / "labels.csv"
    refuse_existing(table, "give another OUT")

    def store(split: str, number: int, data: bytes, path: str) -> str:
        suffix = Path(path).suffix.lower()
        if suffix not in PICTURES:
            formats = (ending for start, ending in FORMATS.items() if data.startswith(start))
            suffix = next(formats, ".img")
        file = out / split / f"{number:08d}{suffix}"
        with opening(file):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        return str(file.absolute())

    builder = Builder(folder, Reading(), folder, "row")
    listed = fill(builder, store)
    tables = builder.tables(sort_classes=not listed)
    if listed:
        classes = next(iter(tables.values())).classes
        with opening(out):
            write_text(out / "classes.txt", "\n".join(classes) + "\n")
    write_table(tables, table)
    return table


def main(arguments: list[str]) -> int:
    """Run the command; return its exit code."""
    try:
        if len(arguments) != 2:
            raise UserError(USAGE)
        table = export(Path(arguments[0]), Path(arguments[1]))
    except (UserError, OSError) as error:
        print(f"spml: {error}", file=sys.stderr)
        return 2
    listed = table.with_name("classes.txt")
    option = f" --classes {listed}" if listed.exists() else ""
    print(f"Written. Train with: spml train {table}{option}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
