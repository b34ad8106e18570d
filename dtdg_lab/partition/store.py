"""Partitions in files."""

from __future__ import annotations

import contextlib
import os
import tokenize
import uuid
import zipfile
import zlib
from pathlib import Path

import numpy as np

from dtdg_lab.core.errors import DataError, PartitionError, PlanError
from dtdg_lab.core.paths import as_path
from dtdg_lab.core.plans import Partition
from dtdg_lab.graphs.dynamic_graph import DynamicGraph

FORMAT = "dtdg-lab partition 1"

# what zipfile and numpy raise for files that are cut short, changed, or something else
DAMAGE = (
    OSError, ValueError, TypeError, KeyError, EOFError, RuntimeError, MemoryError, OverflowError, SyntaxError,
    tokenize.TokenError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


def save_partition(partition: Partition, path: str | Path) -> Path:
    """Write a partition into one file, whole or not at all; a file already there is replaced.

    Args:
        partition: of N vertices.
        path: the file; it is given the ending .npz where it has none.

    Returns:
        The file.

    Raises:
        DataError: it cannot be written, or is no path.
    """
    file = as_path(path, "path")
    file = file if file.suffix else file.with_suffix(".npz")
    arrays = {
        "format": np.array(FORMAT),
        "owner": partition.owner,
        "parts": np.array(partition.parts),
        "data_hash": np.array(partition.data_hash),
        "made_by": np.array(partition.made_by),
        "seconds": np.array(float(partition.seconds)),
    }
    if partition.groups is not None:
        arrays["groups"] = partition.groups
    draft = file.with_name(f".{file.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as out:
            np.savez_compressed(out, allow_pickle=False, **arrays)
        draft.replace(file)
    except OSError as error:
        raise DataError(
            f"cannot write the partition to {file}: {error.strerror or error}. Give a file in a folder you may write."
        ) from error
    finally:
        with contextlib.suppress(OSError):  # where it could not be made, there is none
            draft.unlink()
    return file


def load_partition(path: str | Path, graph: DynamicGraph | None = None, parts: int | None = None) -> Partition:
    """Read what :func:`save_partition` wrote.

    Args:
        path: the file.
        graph: the graph it must be for; any where None. A file made for no graph in particular fits every graph of
            as many vertices.
        parts: P it must have; any where None.

    Raises:
        DataError: there is no such file, or it is damaged, or holds something else.
        PartitionError: it is for another graph, or has another number of parts.
    """
    file = as_path(path, "path")
    partition = _read(file)
    if graph is not None:
        _check_graph(file, partition, graph)
    if parts is not None and parts != partition.parts:
        raise PartitionError(
            f"{file} divides its vertices into {partition.parts} parts, and {parts} are asked for. Set "
            f"parts={partition.parts}, or give a file of {parts} parts."
        )
    return partition


def _read(file: Path) -> Partition:
    if not os.path.isfile(file):
        raise DataError(
            f"there is no file {file}. Give one that .save(path) of a partition or dtdg_lab.partition.store wrote."
        )
    try:
        with zipfile.ZipFile(file) as archive:
            if (wrong := archive.testzip()) is not None:
                raise ValueError(f"the checksum of {wrong} is not its own")
        with np.load(file, allow_pickle=False) as arrays:
            found = {name: arrays[name] for name in arrays.files}
        if str(found["format"]) != FORMAT:
            raise ValueError(f"its format is {str(found['format'])[:40]!r}, not {FORMAT!r}")
        return Partition(
            found["owner"], int(found["parts"]), found.get("groups"), str(found["data_hash"]), str(found["made_by"]),
            float(found["seconds"]),
        )  # fmt: skip
    except PlanError as error:
        raise DataError(f"{file} holds no valid partition: {error}") from error
    except DAMAGE as error:
        words = f"no entry {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise DataError(
            f"{file} is no partition, or a damaged one: {words}. Make the partition again and save it."
        ) from error


def _check_graph(file: Path, partition: Partition, graph: DynamicGraph) -> None:
    if partition.data_hash and partition.data_hash != graph.data_hash:
        raise PartitionError(
            f"{file} was made for another graph: its data hash is {partition.data_hash[:16]}, that of {graph.name!r} "
            f"is {graph.data_hash[:16]}. Load the graph it was made for, or make a partition of this one and save it."
        )
    if len(partition.owner) != graph.num_nodes:
        raise PartitionError(
            f"{file} divides {len(partition.owner):,} vertices, and {graph.name!r} has {graph.num_nodes:,}. Give a "
            "partition of this graph."
        )
