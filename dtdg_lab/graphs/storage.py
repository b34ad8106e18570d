"""Store dynamic graphs on disk: memory-mapped files, written one snapshot at a time."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import glob
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dtdg_lab.core.errors import DataError
from dtdg_lab.core.files import draft_path, writable_folder
from dtdg_lab.core.source_code import PARSING
from dtdg_lab.core.system_errors import explain, is_refusal, reading
from dtdg_lab.core.units import as_path
from dtdg_lab.graphs.graph_data import GraphData
from dtdg_lab.graphs.snapshot import Snapshot, over_time, read_only
from dtdg_lab.graphs.windowing import CutCounts

# Folders of arrays on disk: their location, and reading them as memory maps.


FORMAT = "dtdg-lab graph"
SCHEMA = 2
READABLE = (1, 2)  # schema 1 has neither label graphs nor classes
META = "meta.json"
CACHE = "DTDG_LAB_CACHE"
_NOTHING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP)  # no folder can be there
_REMEDY = "Delete the folder and make the graph again."


def cache_folder(root: str | Path | None = None) -> Path:
    """Return the folder where the lab keeps data: ``root``, else $DTDG_LAB_CACHE, else ~/.cache/dtdg-lab.

    Raises:
        DataError: the value is no path.
    """
    if root is not None:
        return as_path(root, "root")
    return as_path(os.environ.get(CACHE) or "~/.cache/dtdg-lab", CACHE)


def graph_folder(key: str, root: str | Path | None = None) -> Path:
    """Return the folder of the graph stored under ``key`` in the cache."""
    return cache_folder(root) / "graphs" / key


def holds_graph(folder: Path, setting: str = CACHE) -> bool:
    """Return whether ``folder`` holds a whole graph. ``setting`` is the argument or variable that names the folder.

    Raises:
        DataError: the folder may not be read.
    """
    with reading(folder, f"the graph folder {folder}", remedy="", setting=setting):
        try:
            os.stat(folder / META)
        except OSError as error:
            if error.errno in _NOTHING:
                return False
            raise
    return True


def check_free(folder: Path) -> None:
    """Refuse a folder that is not empty or not writable, before a graph is built into it.

    Raises:
        DataError: it is not empty, is no folder, or cannot be listed or written.
    """
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        names = []
    except NotADirectoryError:
        raise DataError(f"folder={str(folder)!r} is a file. Choose a new or an empty folder.") from None
    except OSError as error:
        raise DataError(f"folder={str(folder)!r} cannot be read: {explain(error, setting='folder=')}") from error
    if holds_graph(folder, "folder="):
        name = (_to_dict(folder) or {}).get("name")
        what = "a graph that cannot be read" if name is None else f"a graph named {name!r}"
        use = "Delete it" if name is None else f"Open it with lab.DynamicGraph.load({str(folder)!r}), delete it"
        raise DataError(f"folder={str(folder)!r} holds {what}, which is not replaced. {use}, or choose another folder.")
    if names:
        others_text = f" and {len(names) - 1} more" if len(names) > 1 else ""
        raise DataError(f"folder={str(folder)!r} holds {names[0]!r}{others_text}. Choose a new or an empty folder.")
    writable_folder(folder, "folder", DataError)


def read_meta(folder: Path) -> dict[str, Any]:
    """Return the meta.json of a stored graph.

    Raises:
        DataError: there is none, it cannot be read, or its schema is newer than this version.
    """
    with reading(folder / META, remedy=_REMEDY):
        try:
            meta = json.loads((folder / META).read_text(encoding="utf-8"))
        except FileNotFoundError as error:
            raise DataError(
                f"{folder} holds no stored graph (no {META}). Save one there with graph.save(folder), or keep it under "
                "its hash with graph.store()."
            ) from error
    if not isinstance(meta, dict) or meta.get("format") != FORMAT or meta.get("schema") not in READABLE:
        raise DataError(
            f"{folder / META} is not a {FORMAT} of schema {SCHEMA}. Save the graph again with this version."
        )
    return meta


def read(folder: Path, *, mmap: bool) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the read-only arrays by name, and meta.json, of a stored graph.

    Raises:
        DataError: the folder holds no graph, or an array is missing or cut short.
    """
    meta = read_meta(folder)
    arrays = {}
    with reading(folder, f"the graph in {folder}", remedy=_REMEDY, is_missing_damage=True):
        for name in meta["arrays"]:
            with PARSING:  # of the header: the pages are read after it
                pages = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
            # a plain array, over the same pages where they are kept: slicing it is faster
            arrays[name] = read_only(np.asarray(pages) if mmap else np.array(pages))
    return arrays, meta


# Folders of arrays that are written incrementally and appear atomically.
#
# The files grow in a hidden folder beside the target, which is renamed at the end. A process that
# is killed leaves only that hidden folder, which the next writer of the same target removes. Files are not synced to
# disk: after a power failure they may be shorter than their headers say, which reading refuses.


_LOCK = "writing"
_AT_ONCE = 2**22  # bytes read again at a time
_ATTEMPTS, _PAUSE_S = 100, 0.002
_FORGOTTEN_S = 60.0


class ArrayFile:
    """A .npy file that grows along its first axis. Closing it writes the final header.

    Args:
        path: the file, which must not exist.
        dtype: type of the entries.
        row: shape of one entry of the first axis.
    """

    def __init__(self, path: Path, dtype: DTypeLike, row: tuple[int, ...]) -> None:
        self.dtype, self.row, self.length = np.dtype(dtype), row, 0
        self._path = path
        self.file: BinaryIO = path.open("xb")
        self.file.write(self._header())

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array written so far."""
        return (self.length, *self.row)

    def extend(self, array: NDArray[Any]) -> None:
        """Append the entries of an array of shape (k, *row).

        Raises:
            DataError: the array has another type or shape, or the disk is full.
        """
        if array.dtype != self.dtype or array.shape[1:] != self.row:
            raise DataError(
                f"{self._path.stem} takes {self.dtype} of shape {('any', *self.row)}; {array.dtype} of shape "
                f"{array.shape} was given."
            )
        with written(self._path):
            if array.size:
                self.file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        self.length += len(array)

    def close(self) -> None:
        """Write the header with the final length, and close the file."""
        with written(self._path):
            self.file.seek(0)
            self.file.write(self._header())
            self.file.close()

    def mapped(self) -> NDArray[Any]:
        """Map all entries from a closed file."""
        entries: NDArray[Any] = np.load(self._path, mmap_mode="r")
        return entries

    def pieces(self) -> Iterator[NDArray[Any]]:
        """Yield all entries, flat, piece by piece from a closed file."""
        with self._path.open("rb") as file:
            file.seek(len(self._header()))
            while data := file.read(_AT_ONCE):
                yield np.frombuffer(data, dtype=np.uint8)

    def _header(self) -> bytes:
        # numpy leaves room for the digits of the first axis, so that all headers of one file have the same length
        header = BytesIO()
        fields = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(header, fields)
        return header.getvalue()


class Draft:
    """A context manager of a hidden folder of growing arrays, which ``finish`` moves into place.

    Args:
        folder: the final folder.

    Raises:
        DataError: no folder can be made there.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = Path(os.path.abspath(folder))
        self.files: dict[str, ArrayFile] = {}
        # not tempfile: its folders are closed to other users, and a cache may be shared
        self._path = draft_path(self.folder)
        with written(self.folder):
            _remove_dead(self.folder)
            # a draft may be seen only once its lock is held: else another writer takes it for one left behind
            unseen = self._path.with_name(f".new{self._path.name}")
            unseen.mkdir(parents=True)
            self._lock = (unseen / _LOCK).open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            unseen.rename(self._path)

    def __enter__(self) -> Draft:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for file in self.files.values():
            with contextlib.suppress(OSError):  # a full disk was reported before; the rest is removed now
                file.file.close()
        self._lock.close()
        shutil.rmtree(self._path, ignore_errors=True)

    def file(self, name: str, dtype: DTypeLike, row: tuple[int, ...] = ()) -> ArrayFile:
        """Return the growing array of this name; the first call creates it."""
        if name not in self.files:
            with written(self.folder):
                self.files[name] = ArrayFile(self._path / f"{name}.npy", dtype, row)
        return self.files[name]

    def put(self, name: str, array: NDArray[Any]) -> None:
        """Write a whole array."""
        self.file(name, array.dtype, array.shape[1:]).extend(array)

    def close_files(self) -> None:
        """Close all arrays. They can then be read, but not extended."""
        for file in self.files.values():
            file.close()

    def finish(self, meta: Mapping[str, Any]) -> Path:
        """Write meta.json and rename the folder to its final name, replacing another graph there.

        Where several processes write the same graph at once, one wins and the others find the equal result.

        Raises:
            DataError: the final folder holds something else, or cannot be written.
        """
        with written(self.folder):
            text = json.dumps({"format": FORMAT, "schema": SCHEMA, **meta, "arrays": sorted(self.files)})
            (self._path / META).write_text(text, encoding="utf-8")
            _put(self._path, self.folder)
            (self.folder / _LOCK).unlink(missing_ok=True)  # held until now: a draft left behind must be known for one
        return self.folder


@contextlib.contextmanager
def written(folder: Path) -> Iterator[None]:
    """Raise a DataError with a remedy where the system refuses to write.

    Raises:
        DataError: in place of an OSError.
    """
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot write the graph into {folder}: {explain(error, folder, setting=CACHE)}") from error


def _remove_dead(folder: Path) -> None:
    """Remove drafts of the folder whose writers have ended: their locks are free."""
    drafts = f".{glob.escape(folder.name)}.*"
    for lock in folder.parent.glob(f"{drafts}/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open("r") as file:  # its writer is at work, or has just finished
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
    for aside in folder.parent.glob(f"{drafts}.old"):
        shutil.rmtree(aside, ignore_errors=True)
    for unseen in folder.parent.glob(f".new{drafts}"):
        with contextlib.suppress(FileNotFoundError):  # it lives for microseconds, unless its writer was killed
            if time.time() - unseen.stat().st_mtime > _FORGOTTEN_S:
                shutil.rmtree(unseen, ignore_errors=True)


def _put(draft: Path, folder: Path) -> None:
    """Rename ``draft`` to ``folder``, and replace an older graph there."""
    for attempt in range(_ATTEMPTS):  # others may put or move theirs between any two steps
        with contextlib.suppress(OSError):  # taken: looked at below
            draft.rename(folder)
            return
        if holds_graph(folder):
            if _to_dict(folder) == _to_dict(draft):
                return
            aside = draft.with_name(f"{draft.name}.{attempt}.old")
            with contextlib.suppress(FileNotFoundError):  # somebody else was faster
                folder.rename(aside)
            shutil.rmtree(aside, ignore_errors=True)
        else:
            time.sleep(_PAUSE_S)
    if folder.exists() and not holds_graph(folder):
        raise DataError(f"{folder} exists and holds no graph; nothing was written. Choose a new or an empty folder.")
    draft.rename(folder)  # fails again, with the reason


def _to_dict(folder: Path) -> dict[str, Any] | None:
    """Return the meta.json of a graph; None where it is damaged or gone.

    Raises:
        DataError: the system refuses to read it, so that it may be intact.
    """
    try:
        return read_meta(folder)
    except DataError as error:
        if is_refusal(error):
            raise
        return None


# A dynamic graph as a folder of arrays: written snapshot by snapshot, read without touching a page.


FOLLOWING = "following_"  # prefix of the arrays of label graphs
LABEL_ARRAYS = {"following": f"{FOLLOWING}indptr", "classes": "classes"}  # label -> the array that a graph has with it


def put_snapshot(draft: Draft, snapshot: Snapshot, prefix: str = "") -> None:
    """Append a snapshot to the arrays ``indptr``, ``indices``, ``weights`` and ``edges`` (its number of edges)."""
    draft.file(f"{prefix}indptr", np.int64, (snapshot.num_nodes + 1,)).extend(snapshot.indptr[np.newaxis])
    draft.file(f"{prefix}indices", np.int32).extend(snapshot.indices)
    draft.file(f"{prefix}edges", np.int64).extend(np.array([snapshot.num_edges]))
    if snapshot.weights is not None:
        draft.file(f"{prefix}weights", np.float32).extend(snapshot.weights)


def meta_of(fields: Mapping[str, Any], data_hash: str) -> dict[str, Any]:
    """Return the content of meta.json besides the arrays' names; ``fields`` are those of DynamicGraph."""
    counts = fields["counts"]
    return {
        **{name: fields[name] for name in ("name", "source", "edge_life", "strict_label")},
        "data_hash": data_hash,
        "counts": None if counts is None else asdict(counts),
    }


def save(graph: GraphData, folder: Path) -> Path:
    """Write a graph into ``folder``; see :meth:`DynamicGraph.save`."""
    fields = {name: getattr(graph, name) for name in graph.__dataclass_fields__}
    meta = meta_of(fields, graph.data_hash)
    with Draft(folder) as draft:
        for snapshot in graph.snapshots:
            put_snapshot(draft, snapshot)
        for snapshot in graph.extra_following:
            put_snapshot(draft, snapshot, FOLLOWING)
        for name, array in graph.arrays():
            draft.put(name, array)
        draft.close_files()
        return draft.finish(meta)


def read_fields(folder: Path, *, mmap: bool) -> dict[str, Any]:
    """Return the fields of the graph in ``folder`` and its ``data_hash``; see :meth:`DynamicGraph.load`."""
    arrays, meta = read(folder, mmap=mmap)
    try:
        return _fields(arrays, meta)
    except KeyError as error:
        raise DataError(f"the graph in {folder} lacks {error}. {_REMEDY}") from error
    except DataError as error:
        raise DataError(f"the graph in {folder} is damaged: {error} {_REMEDY}") from error


def _fields(arrays: dict[str, NDArray[Any]], meta: dict[str, Any]) -> dict[str, Any]:
    snapshots = _snapshots(arrays, "")
    steps, nodes = len(snapshots), snapshots[0].num_nodes
    features = over_time(arrays["features"], name="features", dtype=np.float32, steps=steps, shape=(nodes, None))
    following, classes, counts = None, arrays.get("classes"), meta.get("counts")
    if f"{FOLLOWING}indptr" in arrays:
        extra = _snapshots(arrays, FOLLOWING)
        following = extra if len(extra) == steps else (*snapshots[1:], extra[-1])
    if classes is not None:
        classes = over_time(classes, name="classes", dtype=np.int16, steps=steps, shape=(nodes,))
    for name in ("targets", "persistence"):
        if arrays[name].shape != (steps, nodes) or arrays[name].dtype != np.float32:
            raise DataError(f"{name} has shape {arrays[name].shape}; {(steps, nodes)} is needed.")
    return {
        **{name: meta[name] for name in ("name", "source", "edge_life", "strict_label", "data_hash")},
        "snapshots": snapshots,
        "features": features,
        "targets": arrays["targets"],
        "persistence": arrays["persistence"],
        "node_ids": arrays.get("node_ids"),
        "following": following,
        "classes": classes,
        "vertex_split": arrays.get("vertex_split"),
        "counts": None if counts is None else CutCounts(**counts),
    }


def _snapshots(arrays: dict[str, NDArray[Any]], prefix: str) -> tuple[Snapshot, ...]:
    """Return the snapshots whose arrays' names begin with ``prefix``, as views."""
    indptr, indices, weights = (arrays.get(prefix + name) for name in ("indptr", "indices", "weights"))
    if indptr is None or indices is None:
        raise KeyError(f"{prefix}indptr")
    # schema 1 has no numbers of edges: they stand at the ends of the rows
    edges = arrays.get(f"{prefix}edges", indptr[:, -1])
    ends = np.cumsum(edges).tolist()
    sizes = {len(array) for array in (indices, weights) if array is not None}
    if len(edges) != len(indptr) or not ends or sizes != {ends[-1]}:
        raise DataError(f"{prefix}indptr has {len(indptr)} snapshots of {ends[-1:]} edges, indices {len(indices)}.")
    return tuple(
        Snapshot.trusted(row, indices[start:stop], None if weights is None else weights[start:stop])
        for row, start, stop in zip(indptr, [0, *ends[:-1]], ends, strict=True)
    )
