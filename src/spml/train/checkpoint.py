"""last.ckpt: all that a run needs to go on, with a checksum; tensors and plain values, nothing that runs."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import IO, Any

import torch

from spml.atomic import replacing
from spml.errors import UserError

MAGIC = b"spml1\n"  # then the SHA-256 of what follows, then what torch.save writes
HEADER = len(MAGIC) + 32
BLOCK = 1 << 20
LITTLE = 64 << 20  # bytes: with less left on the disk, that is why a file could not be written


def write_checkpoint(path: Path, state: dict[str, Any]) -> None:
    """Write the state; a reader sees the former file or this one, whole."""
    try:
        with replacing(path) as beside, beside.open("wb+") as file:
            file.write(MAGIC + bytes(32))
            torch.save(state, file)
            file.flush()
            digest = _digest(file)
            file.seek(len(MAGIC))
            file.write(digest)
    except RuntimeError as error:  # torch's word for a write that failed
        reason = "the disk is full" if shutil.disk_usage(path.parent).free < LITTLE else _short(error)
        raise UserError(f"{path} cannot be written: {reason}; the one written before is whole") from error


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What write_checkpoint wrote; UserError where the file is not whole, or holds something else."""
    try:
        with path.open("rb") as file:
            head = file.read(HEADER)
            if not head.startswith(MAGIC):
                file.seek(0)
            elif _digest(file) != head[len(MAGIC) :]:
                raise ValueError("its checksum does not fit: it was cut off or changed")
            else:
                file.seek(HEADER)
            state: Any = torch.load(file, map_location="cpu", weights_only=True)
        if not isinstance(state, dict) or "epoch" not in state:
            raise ValueError("it holds no training state")
    except OSError:
        raise
    except Exception as error:  # torch has many errors for a broken file
        raise UserError(f"{path} cannot be read ({_short(error)}); give --overwrite to begin anew") from error
    return state


def _digest(file: IO[bytes]) -> bytes:
    """SHA-256 of all after the header."""
    file.seek(HEADER)
    digest = hashlib.sha256()
    while block := file.read(BLOCK):
        digest.update(block)
    return digest.digest()


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:150] if str(error) else type(error).__name__
