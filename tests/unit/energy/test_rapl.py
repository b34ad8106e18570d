"""RAPL: packages and memory, wraps and jumps of counters, and the command that opens files that are refused."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import subprocess
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
from tests.energy_doubles import CORE, MEMORY, PACKAGE, RANGE_UJ, Powercap, ReplayClock

NOBODY = 65534


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


def test_packages_and_memory_are_added_and_nothing_else(powercap: Powercap) -> None:
    clock = ReplayClock()
    reader = RaplReader(powercap.root, clock=clock)
    assert reader.domains == ("package-0", "package-0/dram")
    for folder, energy_uj in ((PACKAGE, 61_000_000), (CORE, 9_000_000), (MEMORY, 6_000_000)):
        powercap.set(folder, energy_uj)
    clock.advance(0.5)
    reading = reader.read()
    assert (reading.joules, reading.watts) == (pytest.approx(65.0), pytest.approx(130.0))
    assert (reading.source, reading.reader, reading.scope) == ("counter", "rapl", "node")


@pytest.mark.parametrize(
    ("begin", "windows"),
    [
        # microjoules counted, seconds since the last reading, joules
        (
            RANGE_UJ - 1_000_000,  # it may wrap again and again
            [
                (4_000_000, 262.0, 5.0),
                (130_000_000_000, 262.0, 129_996.0),
                (RANGE_UJ - 6_000_000, 262.0, RANGE_UJ * 1e-6 - 130_006.0),
                (4_000_000, 262.0, 10.0),
            ],
        ),
        (1_000_000, [(8_000_000, 0.0, None), (8_000_000, 1.0, 7.0)]),  # no time has passed
        (1_000_000, [(1_000_000, 0.001, None)]),  # it stands still: unknown, not 0 J
        (1_000_000, [(90_000_000, 3600.0, None), (100_000_000, 1.0, 10.0)]),  # long enough for two wraps
    ],
    ids=["wraps", "no time", "stands still", "an hour"],
)
def test_joules_of_a_counter(powercap: Powercap, begin: int, windows: list[tuple[int, float, float | None]]) -> None:
    clock = ReplayClock()
    powercap.set(PACKAGE, begin)
    reader = RaplReader(powercap.root, clock=clock)
    for counted, seconds, joules in windows:
        powercap.set(PACKAGE, counted)
        clock.advance(seconds)
        reading = reader.read()
        assert (reading and reading.joules) == (joules and pytest.approx(joules))
    assert reader.rejected == 0


def test_a_counter_that_was_set_back_is_unknown_not_a_wrap(powercap: Powercap) -> None:
    clock = ReplayClock()
    powercap.set(PACKAGE, 90_000_000_000)
    reader = RaplReader(powercap.root, clock=clock)
    meter = EnergyMeter([reader], clock=clock)
    meter.begin_window("w")
    powercap.set(PACKAGE, 1_000_000)  # the machine slept: the counter began again
    clock.advance(1.0)
    assert meter.sample() == []
    powercap.set(PACKAGE, 51_000_000)
    clock.advance(1.0)
    measured = meter.end_window("w")
    assert (measured.joules, measured.coverage, reader.rejected) == (pytest.approx(50.0), pytest.approx(0.5), 1)


def test_a_counter_set_back_from_beyond_its_range_gives_no_negative_joules(powercap: Powercap) -> None:
    clock = ReplayClock()
    for folder in (PACKAGE, MEMORY):
        powercap.set(folder, 60 * RANGE_UJ)
    reader = RaplReader(powercap.root, clock=clock)
    for folder in (PACKAGE, MEMORY):
        powercap.set(folder, 1000)
    clock.advance(1.0)
    assert reader.read() is None and reader.rejected == 1


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
def test_one_command_opens_every_file_that_is_refused(powercap: Powercap, closed: list[str]) -> None:
    for name in closed:
        (powercap.root / name).chmod(0)
    with unprivileged():
        readers, note = processor_energy(powercap.root)
    assert [reader.source for reader in readers] == ["modelled"]
    assert note.startswith("processor energy is modelled from 20 W idle and 100 W busy, not measured: permission")
    (command,) = re.findall(r"`sudo (chmod [^`]*)`", note)
    for name in closed:
        assert str((powercap.root / name).resolve()) in shlex.split(command)
    assert str(powercap.root / CORE) not in command and "psys" not in command and "*" not in command
    subprocess.run(shlex.split(command), check=True)
    with unprivileged():
        assert RaplReader(powercap.root).domains == ("package-0", "package-0/dram")


def test_memory_that_is_refused_is_left_out_with_the_command_that_allows_it(powercap: Powercap) -> None:
    (powercap.root / MEMORY / "max_energy_range_uj").chmod(0)
    with unprivileged():
        readers, note = processor_energy(powercap.root)
        domains = RaplReader(powercap.root).domains
    assert [reader.name for reader in readers] == ["rapl", "rapl-share"] and domains == ("package-0",)
    assert "leaves out a part" in note and f"`sudo chmod a+r {powercap.root}/{MEMORY}/max_energy_range_uj`" in note


@pytest.mark.parametrize(("folder", "source"), [(PACKAGE, "modelled"), (MEMORY, "counter")])
def test_a_file_that_gives_no_value_is_stated_without_a_chmod(powercap: Powercap, folder: str, source: str) -> None:
    for file in ("name", "energy_uj", "max_energy_range_uj"):
        for code in (errno.EINVAL, errno.EIO, errno.ENODATA, errno.ENODEV, errno.ENOENT):
            with failing_reads(powercap.root / folder / file, code):
                readers, note = processor_energy(powercap.root)
            assert {reader.source for reader in readers} == {source}
            assert "chmod" not in note and f"{folder}/{file}: {os.strerror(code)}" in note


def test_links_without_their_folder_and_files_without_a_number_are_stated(powercap: Powercap) -> None:
    (powercap.root / MEMORY / "max_energy_range_uj").write_text("0")
    assert "it holds 0" in processor_energy(powercap.root)[1]
    for content in (b"", b"many", "²".encode(), b"\xff\xfe", b"-5"):
        (powercap.root / PACKAGE / "energy_uj").write_bytes(content)
        readers, note = processor_energy(powercap.root)
        assert [reader.source for reader in readers] == ["modelled"] and "a whole number" in note
    for folder in powercap.root.iterdir():
        shutil.rmtree(folder)
        folder.symlink_to(powercap.root / "masked" / folder.name)
    assert "no RAPL energy counter" in processor_energy(powercap.root)[1]


@pytest.mark.parametrize("code", [errno.EACCES, errno.EINVAL, errno.EIO, errno.ENODATA, errno.ENOENT])
def test_a_domain_that_goes_away_in_a_run_is_lost_with_its_reason(powercap: Powercap, code: int) -> None:
    clock = ReplayClock()
    meter = EnergyMeter([RaplReader(powercap.root, clock=clock)], clock=clock)
    meter.begin_window("w")
    clock.advance(1.0)
    with failing_reads(powercap.root / MEMORY / "energy_uj", code):
        assert meter.sample() == []
    assert f"{MEMORY}/energy_uj" in meter.lost["rapl"]
    assert ("chmod" in meter.lost["rapl"]) == (code == errno.EACCES)
    clock.advance(1.0)
    assert meter.end_window("w").joules is None


def test_the_second_reader_may_be_refused_too(powercap: Powercap) -> None:
    refusals = [RaplReader(powercap.root), NotAvailableError("went away")]
    with mock.patch("dtdg_lab.energy.rank_readers.RaplReader", side_effect=refusals):
        readers, note = processor_energy(powercap.root)
    assert [reader.source for reader in readers] == ["modelled"] and note.endswith("went away")
