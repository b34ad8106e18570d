"""What the system refuses is told as what it is; files are called damaged by their content alone."""

from __future__ import annotations

import errno
import os
import pickle
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from dtdg_lab.cluster import local
from dtdg_lab.cluster.local import train
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import DataError, RunFailedError
from dtdg_lab.core.plans import Partition
from dtdg_lab.core.system_errors import error_text, explain, is_refusal, reading, system_errno
from dtdg_lab.datasets.names import load_dataset
from dtdg_lab.graphs.dynamic_graph import DynamicGraph
from dtdg_lab.graphs.storage import META
from dtdg_lab.partition.base import save_partition
from dtdg_lab.runs.stored_run import open_run
from tests.restricted import AS_NOBODY, limit, needs_root, open_folder, said

__all__ = ["open_folder"]  # a fixture

# as root first: another user may be kept out of the modules that are imported at first use
LOAD = "from dtdg_lab.graphs.dynamic_graph import DynamicGraph\nDynamicGraph.load(sys.argv[1])\n"
ADVICE_THAT_DESTROYS = ("damaged", "elete", "make the graph again", "fetch it again")


def is_told_as_it_is(message: str) -> bool:
    return not any(words in message for words in ADVICE_THAT_DESTROYS)


@pytest.fixture
def stored(open_folder: Path) -> Path:
    """The folder of a whole graph."""
    return load_dataset("growing").save(open_folder / "shared" / "graph")


@needs_root
@pytest.mark.parametrize("closed", ["shared", "shared/graph", "shared/graph/meta.json", "shared/graph/indices.npy"])
def test_a_graph_of_another_account_is_not_called_damaged(stored: Path, closed: str) -> None:
    path = stored.parents[1] / closed
    path.chmod(0)
    message = said(f"{LOAD}{AS_NOBODY}DynamicGraph.load(sys.argv[1])", stored)
    assert is_told_as_it_is(message)
    assert "Permission denied" in message and f"{path} belongs to root" in message and "runs as nobody" in message
    assert "chmod" not in message and "ask who administers this machine" in message  # it is root's
    path.chmod(0o755)
    assert DynamicGraph.load(stored).num_snapshots


@needs_root
def test_a_cached_graph_of_another_account_is_neither_replaced_nor_called_damaged(stored: Path) -> None:
    before = (stored / META).read_bytes()
    (stored / META).chmod(0)
    stored.parent.chmod(0o777)
    code = "from dtdg_lab.datasets.names import load_dataset\ngraph = load_dataset('growing')\n"
    message = said(f"{code}graph.save(sys.argv[1] + '-2')\n{AS_NOBODY}graph.save(sys.argv[1])", stored)
    assert is_told_as_it_is(message) and "belongs to root" in message
    assert (stored / META).read_bytes() == before


def test_few_file_descriptors_are_told_with_the_limit(stored: Path) -> None:
    code = f"{LOAD}{limit('RLIMIT_NOFILE', 24)}graphs = [DynamicGraph.load(sys.argv[1]) for _ in range(8)]"
    message = said(code, stored)
    assert is_told_as_it_is(message)
    assert "Too many open files" in message and "may have 24 files open" in message and "ulimit -n 4096" in message


def test_little_memory_is_told_with_its_size(open_folder: Path) -> None:
    folder = open_folder / "large"
    graph = load_dataset("growing")
    graph.save(folder)
    with (folder / "features.npy").open("rb+") as file:  # 8 GiB of the same shape, holes on disk
        shape = (graph.num_snapshots, graph.num_nodes, 2**31 // (graph.num_snapshots * graph.num_nodes))
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": shape})
        file.truncate(file.tell() + 4 * int(np.prod(shape)))
    code = LOAD.partition("\n")[0]
    message = said(f"{code}\n{limit('RLIMIT_AS', 4 << 30)}DynamicGraph.load(sys.argv[1])", folder)
    assert is_told_as_it_is(message)
    assert "Cannot allocate memory" in message and "4.0 GiB (ulimit -v)" in message and "are available" in message


@needs_root
def test_a_run_of_another_account_is_not_called_damaged(open_folder: Path) -> None:
    run = train(RunConfig(system="single", dataset="growing", epochs=1), runs_dir=open_folder, progress=False)
    code = "from dtdg_lab.runs.stored_run import open_run\n"
    for closed, use in [
        (run.path, ""),
        (run.path / "config.json", ".config"),
        (run.path / "records", ".table('steps')"),
        (run.path / "records" / "rank0.jsonl", ".table('steps')"),
        (run.path / "summary.json", ".summary"),
        (run.path / "status.json", ".status"),
        (run.path / "checkpoints" / "last.pt", ".directory.checkpoints"),
    ]:
        mode = closed.stat().st_mode
        closed.chmod(0)
        use = f"open_run(sys.argv[1]){use}\n"
        message = said(code + use + AS_NOBODY + use, run.path)
        closed.chmod(mode)
        assert is_told_as_it_is(message) and f"{closed} belongs to root" in message, (closed, message)


@needs_root
@pytest.mark.parametrize("of", ["partition", "checkpoint"])
def test_files_of_another_account_are_not_called_damaged(open_folder: Path, of: str) -> None:
    path = open_folder / f"x.{of}"
    save_partition(Partition(np.array([0, 1], np.int32), 2), path)
    path.chmod(0)
    code = {
        "partition": "from dtdg_lab.partition.base import load_partition as load\n",
        "checkpoint": "import torch.utils.serialization\n"  # nobody may be kept out of this clone's folder
        "from dtdg_lab.training.checkpoint import Checkpoint\nfrom pathlib import Path\n"
        "load = lambda path: Checkpoint.load(Path(path))\n",
    }[of]
    message = said(f"{code}{AS_NOBODY}load(sys.argv[1])", path)
    assert "belongs to root" in message and not any(
        words in message for words in ("damaged", "Start a new run", "not a")
    )


@needs_root
def test_a_data_file_of_another_account_is_not_to_be_fetched_again(open_folder: Path) -> None:
    import gzip

    file = open_folder / "CollegeMsg.txt.gz"
    file.write_bytes(gzip.compress(b"1 2 3\n"))
    file.chmod(0)
    code = "from dtdg_lab.datasets.archives import content\nfrom pathlib import Path\n"
    message = said(f"{code}{AS_NOBODY}content(Path(sys.argv[1]))", file)
    assert is_told_as_it_is(message) and f"{file} belongs to root" in message


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EACCES, "belongs to"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENOSPC, "the disk is full: the file system of"),
        (errno.EDQUOT, "Free some space"),
        (errno.EROFS, "mounted read-only"),
        (errno.EIO, "The files may be whole"),
        (errno.ESTALE, "The files may be whole"),
        (errno.ENOMEM, "of memory are available"),
        (errno.EISDIR, "Move it away"),
        (errno.ENOENT, "Check the path"),
        (errno.EBUSY, "Look at it, or set root= to another folder"),
    ],
)
def test_every_refusal_has_its_remedy(tmp_path: Path, number: int, words: str) -> None:
    error = OSError(number, os.strerror(number), str(tmp_path / "x"))
    message = explain(error, setting="root=")
    assert message.startswith(os.strerror(number)) and words in message and is_told_as_it_is(message)
    with pytest.raises(DataError, match="cannot be read") as caught, reading(tmp_path, remedy="Delete it."):
        raise error
    assert "Delete it" not in str(caught.value)
    assert is_refusal(caught.value) == (number != errno.ENOENT)


@pytest.mark.parametrize(
    "error",
    [
        OSError("Not a gzipped file"),
        OSError(errno.EINVAL, "Invalid argument"),
        ValueError("shape"),
        KeyError("features"),
        EOFError(),
        pickle.UnpicklingError("x"),
        RuntimeError("PytorchStreamReader failed"),
    ],
)
def test_errors_of_content_are_damage(tmp_path: Path, error: Exception) -> None:
    assert system_errno(error) is None
    with (
        pytest.raises(DataError, match=r"is damaged .* Delete it\."),
        reading(tmp_path, remedy="Delete it.", damage=(pickle.UnpicklingError,)),
    ):
        raise error


def test_a_refusal_behind_a_readers_error_counts() -> None:
    try:
        try:
            raise OSError(errno.EIO, "Input/output error")
        except OSError as error:
            raise ValueError("not a gzip file") from error
    except ValueError as error:
        assert system_errno(error) == errno.EIO


def test_torch_out_of_memory_counts_as_memory() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50)
    assert system_errno(caught.value) == errno.ENOMEM
    assert (soft, hard) == resource.getrlimit(resource.RLIMIT_AS)


def test_a_run_that_the_system_ends_says_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), "/some/file")

    monkeypatch.setattr(local, "_train", refuse)
    with pytest.raises(RunFailedError, match=r"Too many open files: '/some/file'\. .*ulimit -n"):
        train(RunConfig(system="single", dataset="growing", epochs=1), runs_dir=tmp_path, progress=False)
    (folder,) = tmp_path.iterdir()
    assert "ulimit -n" in open_run(folder).reason


@needs_root
def test_advised_commands_open_one_folder_and_take_its_name_whole(open_folder: Path) -> None:
    folder = open_folder / "a b; x"
    folder.mkdir()
    (folder / "file").write_text("1")
    load = "import sys\nfrom dtdg_lab.core.system_errors import explain\n"
    code = f"{load}{AS_NOBODY}print(explain(PermissionError(13, ''), sys.argv[1]))"
    os.chown(folder, 12345, 12345)
    folder.chmod(0)
    done = subprocess.run([sys.executable, "-c", code, folder / "file"], capture_output=True, text=True, check=True)
    assert f"chmod a+rx '{folder}'" in done.stdout and "-R" not in done.stdout
    os.chown(folder, 0, 0)
    done = subprocess.run([sys.executable, "-c", code, folder / "file"], capture_output=True, text=True, check=True)
    assert "chmod" not in done.stdout and "ask who administers this machine" in done.stdout


def test_errors_about_no_file_get_no_advice_about_files() -> None:
    reset = ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
    assert error_text(reset) == f"ConnectionResetError: {reset}"
    caused = ValueError("user bug")
    caused.__cause__ = FileNotFoundError(errno.ENOENT, "missing", "x")
    assert error_text(caused) == "ValueError: user bug"
    assert "Free some space" in error_text(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "x"))
