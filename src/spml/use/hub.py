"""Models on the Hugging Face hub: upload one, load one, or write the same files to a folder."""

from __future__ import annotations

import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import spml
from spml.errors import EXTRA, UserError
from spml.files import opening, refuse_existing
from spml.model.store import CARD, INFO, WEIGHTS, check_weights, model_folder, read_info

PREFIX = "hub:"
FILES = (WEIGHTS, INFO, CARD)
REPOSITORY = re.compile(r"(?P<name>[\w-][\w.-]*/[\w-][\w.-]*)(@(?P<revision>[\w./-]+))?")
LOG_IN = "check the name and the network; private models and uploads need `hf auth login`"


def repository(text: str) -> tuple[str, str | None] | None:
    """Return OWNER/NAME and the revision of OWNER/NAME@REVISION; None for a folder."""
    parts = REPOSITORY.fullmatch(text.removeprefix(PREFIX))
    if parts is not None:
        return parts["name"], parts["revision"]
    if text.startswith(PREFIX):
        raise UserError(f"{text}: a model of the hub is {PREFIX}OWNER/NAME")
    return None


def local_folder(model: str | Path) -> Path:
    """Return the folder of a model; one named hub:OWNER/NAME is downloaded, once per version."""
    if not str(model).startswith(PREFIX):
        return Path(model)
    place = repository(str(model))
    assert place is not None
    name, revision = place
    _check_installed()
    import huggingface_hub

    try:
        folder = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(FILES)
        )
    except Exception as error:  # hub, network and file errors have many types
        raise _unreachable(name, error) from error
    return Path(folder)


def push(run: Path, target: str, *, overwrite: bool = False) -> str:
    """Write the model and its card to a repository or a folder; return where they are.

    A new repository is private.

    Args:
        run: a run folder or its `best`.
        target: OWNER/NAME, or a folder: a path that starts with . or /, or has no / inside.
        overwrite: replace the files in an existing folder; a repository keeps its old versions.
    """
    read_info(run)
    check_weights(run)
    folder, place = model_folder(run), repository(target)
    if place is None:
        return _copy(folder, Path(target), overwrite=overwrite)
    name, revision = place
    _check_installed()
    import huggingface_hub

    try:
        huggingface_hub.create_repo(name, private=True, exist_ok=True)
        huggingface_hub.upload_folder(
            repo_id=name,
            folder_path=folder,
            allow_patterns=list(FILES),
            revision=revision,
            commit_message=f"Upload a model of spml {spml.__version__}",
        )
    except Exception as error:
        raise _unreachable(name, error) from error
    return f"{PREFIX}{name}"


def _copy(folder: Path, out: Path, *, overwrite: bool) -> str:
    if not overwrite:
        refuse_existing(out, "give --overwrite or another folder")
    with opening(out):
        out.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copyfile(folder / name, out / name)
    return str(out)


def _check_installed() -> None:
    if find_spec("huggingface_hub") is None:
        needs = "the hub needs a package that is not installed"
        raise UserError(f"{needs}; {EXTRA.format('hub')}")


def _unreachable(name: str, error: Exception) -> UserError:
    reason = " ".join(str(error).split())[:160] or type(error).__name__
    return UserError(f"{PREFIX}{name}: {reason}; {LOG_IN}")
