"""Small valid files of every format, as its publisher writes them, made here."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import pickle
import tarfile
import types
import zipfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from dtdg_lab.core.errors import DataError
from dtdg_lab.datasets.tables import EdgeTable

TEXT = b"# a comment\n1 2 0\n2\t3 10\n\n3 1 25\n% another\n1 2 29\n"
SNAP_TEXT = b"# a comment\n1 2 30\n2\t3 10\n\n3 1 25\n% another\n1 2 -5\n"
SNAP_CSV = b"6,2,4,1289241911.72836\n6,5,-10,1289241941.53378\n1,15,1,1289243140.39049\n"
EDGES_COMMA = b"428,538,1084585996\n374,538,1084586048\n231,452,1084586140\n"
EDGES_SPACE = b"% asym weighted\n48 13 1 926389620\n67 13 2.5 926418960\n13 48 1 926418961\n"
MTX = b"%%MatrixMarket matrix coordinate real general\n% a comment\n67 67 3\n48 13 1 92\n67 13 2.5 93\n13 48 1 94\n"
KONECT = b"% asym posweighted\n% 3 4 4\n1 2 1\t1162422000\n1 3 1 1162422000 \n4 1 -1 1162422001\n"
JODIE = (
    b"user_id,item_id,timestamp,state_label,comma_separated_list_of_features\n"
    b"0,0,0.0,0,0.5,-1,0.25\n1,1,36.0,1,0.125,2,0\n0,2,77.5,0,1e-3,0,0\n"
)
REDDIT = (
    b"SOURCE_SUBREDDIT\tTARGET_SUBREDDIT\tPOST_ID\tTIMESTAMP\tLINK_SENTIMENT\tPROPERTIES\n"
    b"leagueoflegends\tteamredditteams\t1u4nrps\t2013-12-31 16:39:58\t1\t345.0,298.0,0.75\n"
    b"theredlion\tsoccer\t1u4qkd\t2013-12-31 18:18:37\t-1\t101.0,98.0,0.74\n"
    b"soccer\tleagueoflegends\t1u4qlzs\t2014-01-01 00:00:00\t1\t85.0,85.0,0.75\n"
)
AMLSIM = (
    b"tran_id,orig_acct,bene_acct,tx_type,base_amt,tran_timestamp,is_sar,alert_id\n"
    b"1,76,1443,TRANSFER,161.25,2017-01-01T00:00:00Z,False,-1\n"
    b"2,4,76,TRANSFER,1000,2017-01-02T00:00:00Z,True,7\n3,1443,4,TRANSFER,0.5,2017-01-02T00:00:01Z,False,-1\n"
)
PAYSIM = (
    b"step,type,amount,nameOrig,oldbalanceOrig,newbalanceOrig,nameDest,isFraud\n"
    b"0,TRANSFER,9839.64,C1231,170136.0,160296.36,M1979,0\n3,TRANSFER,1864.28,C1666,21249.0,19384.72,C1231,0\n"
)
CHICKENPOX = {
    "edges": [[0, 1], [1, 0], [1, 2], [2, 2]],
    "node_ids": {"BACS": 0, "BEKES": 2, "BARANYA": 1},
    "FX": [[week + 0.25 * county for county in range(3)] for week in range(7)],
}
COVID = {
    "edge_mapping": {
        "edge_index": {str(day): [[0, 1], [1, 1], [2, 0]][: 1 + day % 3] for day in range(6)},
        "edge_weight": {str(day): [10.0, 20.0, 30.5][: 1 + day % 3] for day in range(6)},
    },
    "time_periods": 6,
    "y": [[day, 2 * day * day, 7] for day in range(6)],
}
TENNIS = {
    **{
        str(hour): {
            "index": hour,
            "edges": [[0, 1], [2, 1]][: 1 + hour % 2],
            "weights": [2, 1][: 1 + hour % 2],
            "y": [hour, 5, 0],
            "X": [[148.0, 0.0118], [10.0, 1.0], [0.0, 0.3]],
        }
        for hour in range(4)
    },
    "time_periods": 4,
    "node_ids": {"rolandgarros": 0, "RafaelNadal": 1, "stanwawrinka": 2},
}
NODES_EDGES = {
    "nodes.csv": b"node,label,split,feature_indices\n0,3,train,1 4\n1,0,val,\n2,-1,none,0\n3,1,test,2 3 4\n",
    "edges.csv": b"src,dst\n0,1\n2,1\n1,0\n3,3\n3,0\n",
}
ELLIPTIC = {
    "elliptic_txs_features.csv": b"230,1,0.5,-1\n5530,1,0.25,2\n232,2,1,1e-2\n7,2,0,0\n",
    "elliptic_txs_edgelist.csv": b"txId1,txId2\n232,7\n230,5530\n5530,230\n",
    "elliptic_txs_classes.csv": b"txId,class\n230,unknown\n5530,2\n232,1\n7,unknown\n",
}
OGB = {
    "arxiv/raw/edge.csv.gz": gzip.compress(b"0,1\n2,1\n3,0\n1,0\n", mtime=0),
    "arxiv/raw/num-node-list.csv.gz": gzip.compress(b"4\n", mtime=0),
    "arxiv/raw/num-edge-list.csv.gz": gzip.compress(b"4\n", mtime=0),
    "arxiv/raw/node-feat.csv.gz": gzip.compress(b"0.5,1\n-0.25,2\n1e-3,3\n0,4\n", mtime=0),
    "arxiv/raw/node-label.csv.gz": gzip.compress(b"4\n0\n39\n1\n", mtime=0),
    "arxiv/raw/node_year.csv.gz": gzip.compress(b"2013\n2015\n2014\n2020\n", mtime=0),
    "arxiv/split/time/train.csv.gz": gzip.compress(b"0\n2\n", mtime=0),
    "arxiv/split/time/valid.csv.gz": gzip.compress(b"1\n", mtime=0),
    "arxiv/split/time/test.csv.gz": gzip.compress(b"3\n", mtime=0),
}


def npz(compressed: bool = False, **arrays: np.ndarray) -> bytes:
    held = io.BytesIO()
    (np.savez_compressed if compressed else np.savez)(held, **arrays)
    return held.getvalue()


OGB_NPZ = {
    "papers/raw/data.npz": npz(
        edge_index=np.array([[0, 2, 3, 1], [1, 1, 0, 0]]),
        num_nodes_list=np.array([4]),
        num_edges_list=np.array([4]),
        node_feat=np.array([[0.5, 1], [-0.25, 2], [1e-3, 3], [0, 4]], dtype=np.float32),
        node_year=np.array([[2013], [2015], [2014], [2020]]),
    ),
    "papers/raw/node-label.npz": npz(compressed=True, node_label=np.array([[4.0], [0.0], [39.0], [np.nan]])),
    **{name: data for name, data in OGB.items() if "split" in name},
}


class csr_matrix:
    """Pickles as scipy's class of that name does, without scipy."""

    __module__ = "scipy.sparse.csr"

    def __init__(self, dense: np.ndarray) -> None:
        rows, columns = np.nonzero(dense)
        self.__dict__ = {
            "_shape": dense.shape,
            "data": dense[rows, columns],
            "indices": columns.astype(np.int32),
            "format": "csr",
            "indptr": np.searchsorted(rows, np.arange(len(dense) + 1)).astype(np.int32),
            "maxprint": 50,
        }


def pickled(value: object) -> bytes:
    """As Planetoid's authors pickled it: protocol 2; sparse rows under the name of scipy's class."""
    module = types.ModuleType("scipy.sparse.csr")
    module.csr_matrix = csr_matrix  # type: ignore[attr-defined]
    with mock.patch.dict("sys.modules", {"scipy.sparse.csr": module}):
        return pickle.dumps(value, protocol=2)


def planetoid() -> dict[str, bytes]:
    """Seven papers: 0 is for training, 1 and 2 are described, 6 and 4 are for testing, 3 and 5 are not described."""
    features = np.zeros((7, 5), dtype=np.float32)
    features[[0, 0, 1, 2, 4, 6, 6], [0, 3, 1, 2, 4, 0, 4]] = [1, 0.5, 1, 1, 0.25, 1, 1]
    labels = np.zeros((7, 3), dtype=np.int32)
    labels[[0, 1, 2, 4, 6], [2, 0, 1, 1, 0]] = 1
    graph = defaultdict(list, {0: [1, 2, 1], 1: [0, 0], 2: [0], 3: [], 4: [6, 4], 5: [], 6: [4]})
    parts = {
        "x": csr_matrix(features[:1]),
        "y": labels[:1],
        "allx": csr_matrix(features[:3]),
        "ally": labels[:3],
        "tx": csr_matrix(features[[6, 4]]),
        "ty": labels[[6, 4]],
        "graph": graph,
    }
    files = {f"ind.tiny.{name}": pickled(value) for name, value in parts.items()}
    return {**files, "ind.tiny.test.index": b"6\n4\n"}


def zipped(files: dict[str, bytes], how: int = zipfile.ZIP_DEFLATED) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", how) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data, compress_type=how)
    return held.getvalue()


def tarred(files: dict[str, bytes], pack: Callable[[bytes], bytes] = bz2.compress) -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return pack(held.getvalue())


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


def lists(table: EdgeTable) -> tuple:
    weight = None if table.weight is None else table.weight.tolist()
    return table.src.tolist(), table.dst.tolist(), table.time.tolist(), weight


def refused(parse: Callable[..., object], data: object, **options: object) -> str:
    with pytest.raises(DataError) as caught:
        parse(data, "tiny", **options)
    assert "tiny" in str(caught.value)
    return str(caught.value)


def put(folder: Path, data: bytes = TEXT, name: str = "tiny.txt") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)
    return folder
