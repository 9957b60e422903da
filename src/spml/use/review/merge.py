"""Labels that were answered, joined to those that were observed."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from spml.data import SparseLabels


def with_answers(
    labels: SparseLabels, rows: npt.ArrayLike, columns: npt.ArrayLike, values: npt.ArrayLike
) -> SparseLabels:
    """The same labels with these entries in place of what stood there.

    Args:
        labels: observed ones.
        rows: of the answers.
        columns: of the answers, with its row each once.
        values: 1 or -1.
    """
    known = np.repeat(np.arange(labels.shape[0]), np.diff(labels.indptr))
    row = np.concatenate([known, np.asarray(rows, np.int64)])
    column = np.concatenate([labels.indices, np.asarray(columns, np.int64)])
    value = np.concatenate([labels.values, np.asarray(values, np.int8)])
    order = np.lexsort(
        (column, row)
    )  # stable: of an entry that is there twice, the answer comes last
    keys = row[order] * labels.num_classes + column[order]
    order = order[np.append(np.diff(keys) != 0, True)[: len(order)]]
    return SparseLabels.from_entries(
        row[order], column[order], value[order], labels.shape, labels.fill
    )
