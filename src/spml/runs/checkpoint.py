"""last.ckpt: all that a run needs to go on, with a checksum; tensors and plain values, nothing that runs."""

from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path
from typing import IO, Any

import torch

from spml.errors import UserError
from spml.files import replacing, write_error

MARK = b"spml1\n"  # after what torch.save writes, before the SHA-256 of it; torch.load does not mind either
TRAILER = len(MARK) + 32
BLOCK = 1 << 20


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write the state; a reader sees the former file or this one, whole."""
    try:
        with replacing(path) as beside, beside.open("wb+") as file:
            torch.save(state, file)
            length = file.seek(0, os.SEEK_END)
            digest = _digest(file, length)
            file.seek(length)
            file.write(MARK + digest)
    except RuntimeError as error:  # torch's word for a write that failed
        raise write_error(path, error) from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What write_checkpoint wrote; UserError where the file is not whole, or holds something else."""
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
    except pickle.UnpicklingError as error:  # of which torch would say how to load it all the same
        reason = "it holds more than tensors and plain values, which may be a program; nothing of it was run"
        raise UserError(
            f"{path} cannot be read ({reason}); give --overwrite to begin anew"
        ) from error
    except Exception as error:  # torch has many errors for a broken file
        raise UserError(
            f"{path} cannot be read ({_short(error)}); give --overwrite to begin anew"
        ) from error
    return state


def _digest(file: IO[bytes], length: int) -> bytes:
    """SHA-256 of the first `length` bytes."""
    file.seek(0)
    digest = hashlib.sha256()
    while length and (block := file.read(min(BLOCK, length))):
        digest.update(block)
        length -= len(block)
    return digest.digest()


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:150] if str(error) else type(error).__name__
