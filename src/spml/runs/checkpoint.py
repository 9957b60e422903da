"""The file of a checkpoint: tensors and plain values, with a checksum."""

import hashlib
import os
import pickle
from pathlib import Path
from typing import IO, Any

import torch

from spml.errors import UserError
from spml.files import Record, replacing, write_error

MARK = b"spml1\n"  # precedes the SHA-256 at the end of a checkpoint; torch.load ignores both
TRAILER = len(MARK) + 32
BLOCK = 1 << 20
BEGIN_ANEW = "give --overwrite to begin anew"


def write_checkpoint(path: Path, state: Record, previous: Path | None = None) -> None:
    """Write tensors and plain values with a checksum; the old file becomes `previous`."""
    try:
        with replacing(path) as beside:
            with beside.open("wb+") as file:
                torch.save(state, file)
                length = file.seek(0, os.SEEK_END)
                digest = _digest(file, length)
                file.seek(length)
                file.write(MARK + digest)
            if previous is not None and path.exists():
                path.replace(previous)
    except RuntimeError as error:  # torch raises it when a write fails
        raise write_error(path, error) from error


def read_checkpoint(path: Path) -> Record:
    """Read a checkpoint; UserError if the file is incomplete, changed or something else."""
    try:
        with path.open("rb") as file:
            length = max(file.seek(0, os.SEEK_END) - TRAILER, 0)
            file.seek(length)
            trailer = file.read()
            if not trailer.startswith(MARK) or _digest(file, length) != trailer[len(MARK) :]:
                raise ValueError("its checksum does not fit: it was cut off or changed")
            file.seek(0)
            state: Any = torch.load(file, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or "epoch" not in state:
            raise ValueError("it holds no training state")
    except OSError:
        raise
    except pickle.UnpicklingError as error:  # torch's own text explains how to load it anyway
        reason = "it holds more than tensors and plain values, maybe a program; none of it was run"
        raise UserError(f"{path} cannot be read ({reason}); {BEGIN_ANEW}") from error
    except Exception as error:  # torch raises many types for a damaged file
        lines = str(error).splitlines()
        reason = lines[0][:150] if lines else type(error).__name__
        raise UserError(f"{path} cannot be read ({reason}); {BEGIN_ANEW}") from error
    return state


def _digest(file: IO[bytes], length: int) -> bytes:
    """Return the SHA-256 of the first `length` bytes."""
    file.seek(0)
    digest = hashlib.sha256()
    while length and (block := file.read(min(BLOCK, length))):
        digest.update(block)
        length -= len(block)
    return digest.digest()
