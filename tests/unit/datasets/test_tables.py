"""What a table of edges and one of a static graph must hold."""

from __future__ import annotations

import numpy as np
import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.tables import EdgeTable, StaticTable


def vector(*values, dtype=np.int64):
    return np.array(values, dtype=dtype)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"src": vector(0.0, 1.0, dtype=float)}, "src has type float64; int64"),
        ({"src": [0, 1]}, "src is a list"),
        ({"dst": vector(1)}, r"dst has shape \(1,\)"),
        ({"src": vector(), "dst": vector(), "time": vector()}, "at least 1 edge"),
        ({"src": vector(0, -1)}, r"src\[1\] is -1; 0 to"),
        ({"dst": vector(2**31, 0)}, r"dst\[0\] is 2147483648; 0 to 2147483647"),
        ({"time": vector(0, np.nan, dtype=float)}, r"time\[1\] is nan; finite"),
        ({"time": vector(1, 2, dtype=np.int32)}, "time has type int32"),
        ({"weight": vector(1, np.inf, dtype=float)}, r"weight\[1\] is inf"),
        ({"weight": vector(1, 2, dtype=np.float32)}, "weight has type float32"),
        ({"node_ids": np.array(["a"])}, r"src\[1\] is 1; 0 to 0"),
        ({"node_ids": np.array([0.5, 1.5])}, "node_ids has type float64"),
    ],
)
def test_an_edge_table_is_checked(changed, words):
    right = {"src": vector(0, 1), "dst": vector(1, 0), "time": vector(5, 4)}
    assert EdgeTable(**right).src.flags.writeable is False
    with pytest.raises(DataError, match=words):
        EdgeTable(**{**right, **changed})


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"num_nodes": True}, "num_nodes=True"),
        ({"src": vector(0, 2)}, r"src\[1\] is 2; 0 to 1"),
        ({"features": np.zeros((2, 2, 1), np.float32)}, r"features has shape \(2, 2, 1\)"),
        ({"features": np.full((2, 1), np.inf, np.float32)}, r"features\[0, 0\] is inf"),
        ({"classes": np.zeros(3, np.int16)}, r"classes has shape \(3,\)"),
        ({"vertex_split": np.full(2, 3, np.int8)}, r"vertex_split\[0\] is 3; -1 to 2"),
    ],
)
def test_a_static_table_is_checked(changed, words):
    right = {"src": vector(0, 1), "dst": vector(1, 0), "num_nodes": 2}
    StaticTable(**right, features=np.zeros((2, 0), np.float32), vertex_split=np.zeros(2, np.int8))
    with pytest.raises(DataError, match=words):
        StaticTable(**{**right, **changed})
