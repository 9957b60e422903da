"""Any damage to a file gives tables or an error that names it."""

import io
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spml.errors import UserError
from tests.data.conftest import FUZZ, train

ITEMS = ["a", "b", "c"]
LISTS = pa.table({"image": ITEMS, "labels": [["dog"], [], ["cat", None]]})
NUMBERS = pa.table({"image": ITEMS, "label": [0, 1, 2]})


def npz():
    labels = np.array([[1, 0], [0, 1], [-1, 1]], np.int8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, x=np.eye(3), labels=labels, classes=np.array(["dog", "cat"]))
    return buffer.getvalue()


def parquet(table):
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def arrow(table):
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)
    return buffer.getvalue()


LINES = '{"image": "a", "label": "dog"}\n{"image": "é", "label": null}\n'
NAMES = {"features": {"label": {"names": ["dog", "cat", "bird"]}}}
FILES = {  # the last file of each is damaged
    "npz": {"x.npz": npz()},
    "wide": {"x.parquet": parquet(pa.table({"image": ITEMS, "dog": [1, 0, -1]}))},
    "long": {"x.parquet": parquet(pa.table({"image": ITEMS, "label": ["dog|cat", None, "é"]}))},
    "hub parquet": {"set/train.parquet": parquet(LISTS)},
    "hub arrow": {"set/data.arrow": arrow(LISTS)},
    "hub lines": {"set/metadata.jsonl": LINES.encode()},
    "hub names": {
        "set/data.arrow": arrow(NUMBERS),
        "set/dataset_info.json": json.dumps(NAMES).encode(),
    },
}
DAMAGE = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=6)


@pytest.mark.parametrize("kind", FILES)
@FUZZ
@given(DAMAGE, st.booleans())
def test_damaged_files_give_tables_or_an_error(tmp_path, kind, damage, cut):
    for name, content in FILES[kind].items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
    content = bytearray(path.read_bytes())
    for place, byte in damage:
        content[place % len(content)] = byte
    path.write_bytes(content[: damage[0][0] % len(content)] if cut else content)
    source = path.parent if kind.startswith("hub") else path
    try:
        assert train(source, on_error=lambda error: None).classes
    except UserError as error:
        assert str(source) in str(error)
