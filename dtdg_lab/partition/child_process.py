"""Partitioning libraries in a child process, so that a crash or a timeout does not end the run."""

from __future__ import annotations

import ctypes
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtdg_lab.core.child_process import end_of, environment, stops_blocked
from dtdg_lab.core.errors import NotAvailableError, PartitionError
from dtdg_lab.core.files import read_array
from dtdg_lab.core.preparation import announce

# The child process of :mod:`dtdg_lab.partition.child_process`: ``child PARENT SOLVER INPUT.npz OUTPUT.npy``.


END_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


def end_with(parent: int) -> None:
    """Have this process killed when its parent dies, even by kill -9 (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(END_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the prctl call
            sys.exit(f"the parent process {parent} has ended")


def main(parent: str, solver: str, input_file: str, output_file: str) -> None:
    """Run ``solve_<solver>`` on the arrays of the input file; write the (K,) parts to the output file."""
    end_with(int(parent))
    with np.load(input_file, allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    solve = {"hypergraph": solve_hypergraph, "metis": solve_metis}[solver]
    np.save(output_file, np.asarray(solve(arrays)), allow_pickle=False)


# Runs in the child process; imports nothing else of the package.


def solve_hypergraph(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Run Mt-KaHyPar on the nets of N nodes; return their parts, (N,)."""
    import mtkahypar

    # one thread: with more, only the deterministic preset is reproducible, which takes three times as long
    library = mtkahypar.initialize(1)
    mtkahypar.set_seed(int(arrays["seed"]))
    context = library.context_from_preset(mtkahypar.PresetType.DEFAULT)
    context.set_partitioning_parameters(int(arrays["parts"]), float(arrays["imbalance"]), mtkahypar.Objective.KM1)
    context.logging = False
    starts, pins = arrays["starts"].tolist(), arrays["pins"].tolist()
    nets = [pins[start:stop] for start, stop in itertools.pairwise(starts)]
    hypergraph = library.create_hypergraph(
        context,
        len(arrays["vertex_weights"]),
        len(nets),
        nets,
        arrays["vertex_weights"].tolist(),
        arrays["net_weights"].tolist(),
    )
    return np.asarray(hypergraph.partition(context).get_partition(), np.int64)


TIME_LIMIT_S = 600.0
POLL_S = 0.2
EXPECTED_S = {"metis": 3e-7, "hypergraph": 5e-6}  # seconds for each input number, measured on one core
_REMEDY = "Choose another partitioner, such as load_aware, which needs no library."


def needs_library(name: str) -> None:
    """Check that the package ``name`` is installed.

    Raises:
        NotAvailableError: the package is not installed.
    """
    if importlib.util.find_spec(name) is None:
        raise NotAvailableError(
            f"the package {name} is not installed, but this partitioner needs it. Install it with: pip install {name}; "
            "or choose another partitioner, such as load_aware."
        )


def in_child(
    solver: str, arrays: Mapping[str, NDArray[Any]], *, vertices: int, parts: int, time_limit_s: float = TIME_LIMIT_S
) -> NDArray[np.int32]:
    """Run ``solve_<solver>(arrays)`` in a child process and return its parts.

    Args:
        solver: such as ``"metis"``.
        arrays: inputs of the solver, by name.
        vertices: number of nodes to assign, K.
        parts: number of parts, P.
        time_limit_s: seconds after which the child is killed.

    Returns:
        (K,) int32, 0 to P - 1.

    Raises:
        PartitionError: the child was killed, failed, timed out, or returned an invalid result.
    """
    size = f"{vertices:,} nodes in {parts} parts"
    with tempfile.TemporaryDirectory(prefix="dtdg-lab-partition-") as name:
        input_file, output_file = Path(name) / "input.npz", Path(name) / "output.npy"
        start = time.monotonic()
        expected_s = sum(array.size for array in arrays.values()) * EXPECTED_S[solver]
        command = [sys.executable, "-P", "-m", "dtdg_lab.partition.child_process", str(os.getpid())]
        try:
            np.savez(input_file, allow_pickle=False, **arrays)
            with stops_blocked():
                child = subprocess.Popen(
                    [*command, solver, input_file, output_file],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=environment(),
                )
            with child:
                try:
                    process = _wait(child, f"{solver} divides {size}", expected_s, time_limit_s)
                finally:
                    child.kill()  # no effect if it has ended
        except subprocess.TimeoutExpired as error:
            raise PartitionError(
                f"{solver} did not divide {size} within {time_limit_s:g} s and was stopped. {_REMEDY}"
            ) from error
        except OSError as error:
            raise PartitionError(f"the process of {solver} could not be started: {error}. {_REMEDY}") from error
        _check_end(solver, process, size, time.monotonic() - start)
        return _read_result(solver, output_file, vertices, parts)


def _wait(
    child: subprocess.Popen[bytes], activity: str, expected_s: float, time_limit_s: float
) -> subprocess.CompletedProcess[bytes]:
    """Wait for the end of the child, and report its activity until then."""
    began_s = time.monotonic()
    while True:
        passed_s = time.monotonic() - began_s
        announce(activity, expected_s - passed_s if passed_s < expected_s else None)
        try:
            output = child.communicate(timeout=max(0.0, min(POLL_S, time_limit_s - passed_s)))
        except subprocess.TimeoutExpired:
            if passed_s >= time_limit_s:
                raise
        else:
            return subprocess.CompletedProcess(child.args, child.returncode, *output)


def _check_end(solver: str, process: subprocess.CompletedProcess[bytes], size: str, duration_s: float) -> None:
    if not process.returncode:
        return
    last = [line.strip() for line in process.stderr.decode(errors="replace").splitlines() if line.strip()][-1:]
    printed = f" Its last output: {last[0][:300]}" if last else ""
    if process.returncode > 0:
        raise PartitionError(f"{solver} failed on {size} with exit status {process.returncode}.{printed} {_REMEDY}")
    raise PartitionError(
        f"{solver} {end_of(process.returncode)} after {duration_s:.1f} s, on {size}.{printed} It ran in its own "
        f"process, so nothing else was affected. {_REMEDY}"
    )


def _read_result(solver: str, file: Path, vertices: int, parts: int) -> NDArray[np.int32]:
    try:
        with file.open("rb") as stored:
            owner = read_array(stored)
    except (OSError, ValueError, EOFError) as error:
        raise PartitionError(f"{solver} wrote no readable result: {error}. {_REMEDY}") from error
    is_vector = owner.shape == (vertices,) and np.issubdtype(owner.dtype, np.integer)
    if not is_vector or (vertices and not (owner.min() >= 0 and owner.max() < parts)):
        span = f", from {owner.min()} to {owner.max()}" if is_vector else ""
        raise PartitionError(
            f"{solver} returned {owner.dtype} of shape {owner.shape}{span}, instead of one part from 0 to {parts - 1} "
            f"for each of {vertices:,} nodes. {_REMEDY}"
        )
    return np.asarray(owner, np.int32)


# Runs in the child process; imports nothing else of the package.


def solve_metis(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Run METIS on K connected nodes in CSR form; return their parts, (K,)."""
    import pymetis

    number = pymetis.zero_copy_dtype()
    parts = int(arrays["parts"])
    options = pymetis.Options(
        seed=int(arrays["seed"]), ufactor=max(1, round(1000 * float(arrays["imbalance"]))), numbering=0
    )
    partition = pymetis.part_graph(
        parts,
        pymetis.CSRAdjacency(arrays["indptr"].astype(number), arrays["indices"].astype(number)),
        vweights=arrays["vertex_weights"].astype(number),
        eweights=arrays["edge_weights"].astype(number),
        recursive=parts <= 8,  # as METIS's manual advises
        options=options,
    )
    return np.asarray(partition.vertex_part, np.int64)


if __name__ == "__main__":
    main(*sys.argv[1:])

MAX_SUM = 1 << 30  # half of the 32-bit range, which leaves headroom for sums of coarser levels


def fitting(weights: NDArray[Any]) -> NDArray[np.int64]:
    """Return the weights as integers of at least 1, scaled down if their sum would exceed 2^30.

    Args:
        weights: (K,) at least 0, K at most 2^29.
    """
    weights = np.asarray(weights, np.float64)
    total = weights.sum()
    scale = 1.0 if total <= MAX_SUM else (MAX_SUM - len(weights)) / total
    return np.maximum(1, np.floor(weights * scale + 0.5)).astype(np.int64)
