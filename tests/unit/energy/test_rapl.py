"""Energy where a file of RAPL is refused: a stated source, its reason, and a remedy that works."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.energy.monitor import EnergyMeter
from dtdg_lab.energy.rank_readers import readers_for
from dtdg_lab.energy.rapl import RaplReader
from dtdg_lab.energy.readers import EnergyReader
from tests.energy_doubles import ReplayClock

NOBODY = 65534
RANGE_UJ = 262_143_328_850
PACKAGE, CORE, MEMORY = "intel-rapl:0", "intel-rapl:0:0", "intel-rapl:0:1"


@pytest.fixture
def powercap() -> Iterator[Path]:
    """A powercap folder that other accounts can reach, with a package and its core, memory and platform."""
    root = Path(tempfile.mkdtemp()) / "powercap"
    root.parent.chmod(0o755)
    for folder, label in ((PACKAGE, "package-0"), (CORE, "core"), (MEMORY, "dram"), ("intel-rapl:1", "psys")):
        (root / folder).mkdir(parents=True)
        (root / folder / "name").write_text(f"{label}\n")
        (root / folder / "max_energy_range_uj").write_text(f"{RANGE_UJ}\n")
        (root / folder / "energy_uj").write_text("1000000\n")
    yield root
    shutil.rmtree(root.parent)


@contextmanager
def unprivileged() -> Iterator[None]:
    """Act as an account to which file modes apply."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@contextmanager
def failing_reads(file: Path, code: int) -> Iterator[None]:
    """Reading this one file fails with an error of the system."""
    read = Path.read_text

    def read_text(self: Path, *arguments: str) -> str:
        if self == file:
            raise OSError(code, os.strerror(code))
        return read(self, *arguments)

    with mock.patch.object(Path, "read_text", read_text):
        yield


def processor_energy(root: Path) -> tuple[list[EnergyReader], str]:
    readers, notes = readers_for("cpu", local_rank=0, local_ranks=1, idle_w=20, max_w=100, rapl_root=root, shares=True)
    return readers, " ".join(notes)


@pytest.mark.parametrize(
    "closed",
    [
        [f"{PACKAGE}/max_energy_range_uj"],
        [f"{PACKAGE}/energy_uj"],
        [f"{PACKAGE}/name"],
        [f"{PACKAGE}/energy_uj", f"{PACKAGE}/max_energy_range_uj", f"{MEMORY}/energy_uj", f"{MEMORY}/name"],
        [PACKAGE],
        [PACKAGE, MEMORY],
        ["."],
    ],
)
def test_one_command_opens_every_rapl_file_that_is_refused(powercap: Path, closed: list[str]) -> None:
    for name in closed:
        (powercap / name).chmod(0)
    with unprivileged():
        readers, note = processor_energy(powercap)
    assert [reader.source for reader in readers] == ["modelled"]
    assert note.startswith("processor energy is modelled from 20 W idle and 100 W busy, not measured: permission")
    (command,) = re.findall(r"`sudo (chmod [^`]*)`", note)
    for name in closed:
        assert str((powercap / name).resolve()) in shlex.split(command)
    assert str(powercap / CORE) not in command and "psys" not in command and "*" not in command
    subprocess.run(shlex.split(command), check=True)
    with unprivileged():
        assert RaplReader(powercap).domains == ("package-0", "package-0/dram")


def test_memory_that_is_refused_is_left_out_with_the_command_that_allows_it(powercap: Path) -> None:
    (powercap / MEMORY / "max_energy_range_uj").chmod(0)
    with unprivileged():
        readers, note = processor_energy(powercap)
        domains = RaplReader(powercap).domains
    assert [reader.name for reader in readers] == ["rapl", "rapl-share"] and domains == ("package-0",)
    assert "leaves out a part" in note and f"`sudo chmod a+r {powercap}/{MEMORY}/max_energy_range_uj`" in note


@pytest.mark.parametrize(("folder", "source"), [(PACKAGE, "modelled"), (MEMORY, "counter")])
def test_a_rapl_file_that_gives_no_value_is_stated_without_a_chmod(powercap: Path, folder: str, source: str) -> None:
    for file in ("name", "energy_uj", "max_energy_range_uj"):
        for code in (errno.EINVAL, errno.EIO, errno.ENODATA, errno.ENODEV, errno.ENOENT):
            with failing_reads(powercap / folder / file, code):
                readers, note = processor_energy(powercap)
            assert {reader.source for reader in readers} == {source}
            assert "chmod" not in note and f"{folder}/{file}: {os.strerror(code)}" in note


def test_links_without_their_folder_and_files_without_a_number_are_stated(powercap: Path) -> None:
    (powercap / MEMORY / "max_energy_range_uj").write_text("0")
    assert "it holds 0" in processor_energy(powercap)[1]
    for content in (b"", b"many", "²".encode(), b"\xff\xfe", b"-5"):
        (powercap / PACKAGE / "energy_uj").write_bytes(content)
        readers, note = processor_energy(powercap)
        assert [reader.source for reader in readers] == ["modelled"] and "a whole number" in note
    for folder in powercap.iterdir():
        shutil.rmtree(folder)
        folder.symlink_to(powercap / "masked" / folder.name)
    assert "no RAPL energy counter" in processor_energy(powercap)[1]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL, errno.EIO, errno.ENODATA, errno.ENOENT])
def test_a_rapl_domain_that_goes_away_in_a_run_is_lost_with_its_reason(powercap: Path, code: int) -> None:
    clock = ReplayClock()
    meter = EnergyMeter([RaplReader(powercap, clock=clock)], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    with failing_reads(powercap / MEMORY / "energy_uj", code):
        assert meter.sample() == []
    assert f"{MEMORY}/energy_uj" in meter.lost["rapl"]
    assert ("chmod" in meter.lost["rapl"]) == (code == errno.EACCES)
    clock.advance(1.0)
    assert meter.end_window("w").joules is None


def test_the_second_reader_of_rapl_may_be_refused_too(powercap: Path) -> None:
    made = RaplReader(powercap)
    refusals = [made, NotAvailableError("went away")]
    with mock.patch("dtdg_lab.energy.rank_readers.RaplReader", side_effect=refusals):
        readers, note = processor_energy(powercap)
    assert [reader.source for reader in readers] == ["modelled"] and note.endswith("went away")


def test_a_counter_set_back_from_beyond_its_range_gives_no_negative_joules(powercap: Path) -> None:
    clock = ReplayClock()
    for folder in (PACKAGE, MEMORY):
        (powercap / folder / "energy_uj").write_text(str(60 * RANGE_UJ))
    reader = RaplReader(powercap, clock=clock)
    for folder in (PACKAGE, MEMORY):
        (powercap / folder / "energy_uj").write_text("1000")
    clock.advance(1.0)
    assert reader.read() is None and reader.rejected == 1
