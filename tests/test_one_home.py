"""Pictures are decoded, models scored and CUDA graphs recorded in one place each."""

import ast
from pathlib import Path

import pytest

import spml

SOURCE = Path(spml.__file__).parent

# Names that only some files may use, each file with its reason.
HOMES = {
    ("decode_image", "decode_jpeg", "read_image", "Image.open"): {
        "data/images/decode.py": "decodes every picture"
    },
    ("ThreadPoolExecutor",): {
        "data/images/loader.py": "prepares batches",
        "data/check/check.py": "looks at files one by one and makes no batches",
        "metrics/scores.py": "sorts scores",
        "train/state.py": "writes files",
    },
    ("ProcessPoolExecutor", "get_context", "SpawnProcess"): {
        "bench/workers.py": "runs the runs of a plan",
        "train/side_by_side.py": "trains the candidates of a race",
    },
    ("FileLock", "SoftFileLock", "lock_descriptor", "flock", "lockf"): {
        "data/download.py": "one download of a file at a time",
        "data/images/store.py": "one writer of the cache at a time",
        "runs/folder.py": "one process trains into a run folder",
    },
    ("CUDAGraph", "cuda.graph", "make_graphed_callables"): {
        "model/graphs.py": "records every graph"
    },
    ("inference_mode",): {
        "model/scoring.py": "the scoring loop",
        "model/graphs.py": "records the scoring function",
        "train/resolve.py": "tries the model on one example before training",
        "train/linear_init.py": "trains the head on features in Fabric's precision",
        "use/export/export.py": "compares an exported model on generated inputs",
    },
}


def used(text: str) -> set[str]:
    """Return the names of a module's code: `name` and `parent.name` of attributes and imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(node.attr)
            parent = node.value
            if isinstance(parent, ast.Name):
                names.add(f"{parent.id}.{node.attr}")
            elif isinstance(parent, ast.Attribute):
                names.add(f"{parent.attr}.{node.attr}")
        elif isinstance(node, ast.ImportFrom):
            names.update(alias.name for alias in node.names)
    return names


@pytest.mark.parametrize("names", HOMES, ids=lambda names: names[0])
def test_a_name_is_used_in_its_home_only(names):
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if used(path.read_text(encoding="utf-8")) & set(names)
    }
    assert users == set(HOMES[names])


def test_uses_are_detected_in_every_spelling():
    text = """
import torch
from torchvision.io import decode_jpeg as fast
from PIL import Image

def late(path):
    with torch.cuda.graph(None), Image.open(path):
        return fast, torch.cuda.CUDAGraph
"""
    assert {"decode_jpeg", "cuda.graph", "Image.open", "CUDAGraph"} <= used(text)
