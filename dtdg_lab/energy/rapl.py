"""Energy counters of processors and memory, from Linux powercap (RAPL)."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dtdg_lab.core.errors import NotAvailableError, shortened
from dtdg_lab.energy.readers import Device, Reading, Scope, Source, reading_of

POWERCAP = Path("/sys/class/powercap")


# Upper bound of the power of a package or memory domain; it limits windows, so that a counter wraps around only once.
_CEILING_W = 1000.0


# Counters move once a millisecond or slower, so a short window may include earlier energy.
_SLACK_S = 0.01


@dataclass(slots=True)
class _Domain:
    """A counter: its file, the microjoules at which it wraps around, and its last value."""

    label: str
    file: Path
    range_uj: int
    last_uj: int


class RaplReader:
    """Joules of the whole node: all processor packages, and memory if it is counted separately.

    ``core`` and ``uncore`` are parts of their package, and ``psys`` includes the packages, so none of them is added.
    Wrap-arounds are corrected by ``max_energy_range_uj``. Only one rank of a node should count its readings.

    Args:
        root: the powercap folder.
        clock: monotonic clock in seconds.

    Attributes:
        note: why memory or another part of a package is left out; empty if all is read.

    Raises:
        NotAvailableError: there is no RAPL, or a package's files cannot be read; the message has the remedy.
    """

    name = "rapl"
    source: Source = "counter"
    scope: Scope = "node"
    device: Device = "processor"

    def __init__(self, root: Path | str = POWERCAP, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._domains, self.note = _find_domains(Path(root))
        self._last_s = clock()
        self.rejected = 0
        """Number of windows in which a counter was reset; their energy is unknown."""
        self._longest_s = min(domain.range_uj for domain in self._domains) * 1e-6 / _CEILING_W

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the summed counters, such as ``package-0`` and ``package-0/dram``."""
        return tuple(domain.label for domain in self._domains)

    def read(self) -> Reading | None:
        """Return the energy of the node since the last reading; None if it is unknown.

        If no time has passed, or the counters have not moved, the energy counts in the next reading. The energy is lost
        if a counter may have wrapped around twice, or was reset (implausible power, counted in :attr:`rejected`).

        Raises:
            NotAvailableError: a counter can no longer be read.
        """
        try:
            now_s, counters = self._clock(), [_number(domain.file) for domain in self._domains]
        except _UnreadableError as error:
            raise NotAvailableError(f"RAPL no longer answers. {_explain([error])}") from error
        interval_s = now_s - self._last_s
        by_domain_uj = [_spent_uj(domain, now_uj) for domain, now_uj in zip(self._domains, counters, strict=True)]
        spent_uj = sum(by_domain_uj)
        if interval_s <= 0 or not spent_uj:
            return None
        for domain, now_uj in zip(self._domains, counters, strict=True):
            domain.last_uj = now_uj
        self._last_s = now_s
        if interval_s > self._longest_s:
            return None
        # below 0: the counter was reset after it had exceeded its range
        if min(by_domain_uj) < 0 or max(by_domain_uj) * 1e-6 > _CEILING_W * (interval_s + _SLACK_S):
            self.rejected += 1
            return None
        joules = spent_uj * 1e-6
        return reading_of(self, joules, interval_s)

    def close(self) -> None:
        """Do nothing: each reading opens and closes the files."""


def _spent_uj(domain: _Domain, now_uj: int) -> int:
    spent_uj = now_uj - domain.last_uj
    return spent_uj if spent_uj >= 0 else spent_uj + domain.range_uj


class _UnreadableError(Exception):
    """A file of RAPL cannot be read, or has no number."""

    def __init__(self, file: Path, reason: str, *, is_refused: bool = False) -> None:
        super().__init__(reason)
        self.file, self.reason, self.is_refused = file, reason, is_refused


def _find_domains(root: Path) -> tuple[list[_Domain], str]:
    """Return the counters to sum, and why others are left out.

    An unreadable package makes the node's energy unknown. Unreadable memory is left out.
    """
    domains: list[_Domain] = []
    needed: list[_UnreadableError] = []
    optional: list[_UnreadableError] = []
    labels: dict[str, str] = {}
    try:
        # intel-rapl-mmio:* has the same packages as intel-rapl:*
        names = sorted(name for name in os.listdir(root) if name.startswith("intel-rapl:"))
    except (FileNotFoundError, NotADirectoryError):
        names = []
    except OSError as error:
        raise NotAvailableError(_explain([_unreadable(root, error)])) from error
    for name in names:
        if not os.path.isdir(root / name):
            continue  # a link without its folder, as in containers
        parent = name.rpartition(":")[0]
        failures = optional if parent in labels else needed
        try:
            label = labels[name] = _text(root / name / "name")
        except _UnreadableError as error:
            failures.append(error)
            label = ""
        if label.startswith("package") or label in ("dram", ""):
            domain = _open_domain(root / name, f"{labels[parent]}/{label}" if parent in labels else label, failures)
            domains += [domain] if label and domain is not None else []
    if needed or (optional and not domains):
        raise NotAvailableError(_explain([*needed, *optional]))
    if not domains:
        raise NotAvailableError(
            f"there is no RAPL energy counter under {root}. Virtual machines and containers rarely pass it through; on "
            "a physical Linux machine load it with `modprobe intel_rapl_msr`. Until then energy is modelled."
        )
    return domains, _explain(optional)


def _open_domain(folder: Path, label: str, failures: list[_UnreadableError]) -> _Domain | None:
    """Return the counter; None, with the reasons added to ``failures``, if a file cannot be read."""
    numbers = []
    for file in (folder / "max_energy_range_uj", folder / "energy_uj"):
        try:
            numbers.append(_number(file))
        except _UnreadableError as error:
            failures.append(error)
    if len(numbers) < 2:
        return None
    range_uj, last_uj = numbers
    if range_uj == 0:
        failures.append(_UnreadableError(folder / "max_energy_range_uj", "it holds 0, no value to wrap at"))
        return None
    return _Domain(label, folder / "energy_uj", range_uj=range_uj, last_uj=last_uj)


def _number(file: Path) -> int:
    text = _text(file)
    if not (text.isascii() and text.isdigit()):
        raise _UnreadableError(file, f"it holds {shortened(text)}; a whole number of microjoules is needed")
    return int(text)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace").strip()
    except OSError as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: OSError) -> _UnreadableError:
    reason = error.strerror or type(error).__name__
    return _UnreadableError(file, reason, is_refused=isinstance(error, PermissionError))


def _explain(failures: Sequence[_UnreadableError]) -> str:
    """Return the reasons, with one command for all files that only root may read; empty without failures."""
    refused = list(dict.fromkeys(_closed_path(failure.file) for failure in failures if failure.is_refused))
    texts = []
    if refused:
        mode = "-R a+rX" if any(path.is_dir() for path in refused) else "a+r"
        files = shlex.join(map(str, refused))
        texts.append(
            f"permission refused on the RAPL file{'s' if len(refused) > 1 else ''} {', '.join(map(str, refused))}: "
            f"Linux lets only root read. Allow it until the next boot with `sudo chmod {mode} {files}`, on the host "
            "where this is a container."
        )
    texts += [
        f"cannot read the RAPL file {failure.file}: {failure.reason}. Check that the powercap driver is loaded "
        "(`sudo modprobe intel_rapl_msr`) and supports this processor; other permissions do not help."
        for failure in failures
        if not failure.is_refused
    ]
    return " ".join(texts)


def _closed_path(file: Path) -> Path:
    """Return the outermost folder above the file without access permission, else the file."""
    folders = [folder for folder in reversed(file.parents) if not os.access(folder, os.X_OK, effective_ids=True)]
    return folders[0] if folders else file
