"""Energy counters of the processors and memory, as Linux shows them under powercap (RAPL; Intel, and AMD from Zen)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.energy.reader import Device, Reading, Scope, Source

POWERCAP = Path("/sys/class/powercap")

# No processor package or memory domain draws more; a longer window than this allows may hide a second wrap-around.
_CEILING_W = 1000.0

# Counters move once a millisecond or slower, so a short window may show what was spent before it.
_SLACK_S = 0.01


@dataclass(slots=True)
class _Domain:
    """One counter: its file, the microjoules at which it wraps, and what it showed last."""

    label: str
    file: Path
    range_uj: int
    last_uj: int


class RaplReader:
    """Joules of the whole node: all processor packages, and memory where it is counted apart.

    ``core`` and ``uncore`` are parts of their package, and ``psys`` holds the packages again, so none of them is added.
    A counter that wrapped around is continued by its ``max_energy_range_uj``. One rank of a node reads.

    Args:
        root: the powercap folder.
        clock: monotonic clock in seconds.

    Raises:
        NotAvailableError: there is no RAPL here, or its files may not be read; the message has the remedy.
    """

    name = "rapl"
    source: Source = "counter"
    scope: Scope = "node"
    device: Device = "processor"

    def __init__(self, root: Path | str = POWERCAP, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._domains = _find_domains(Path(root))
        self._last_s = clock()
        self.rejected = 0
        """Windows in which a counter was set back; their energy is unknown."""
        self._longest_s = min(domain.range_uj for domain in self._domains) * 1e-6 / _CEILING_W

    @property
    def domains(self) -> tuple[str, ...]:
        """Names of the counters that are added, such as ``package-0`` and ``package-0/dram``."""
        return tuple(domain.label for domain in self._domains)

    def read(self) -> Reading | None:
        """Energy of the node since the last reading.

        None, without losing energy, where no time has passed or the counters have not moved yet; None, with the
        window's energy lost, where it was so long that a counter may have wrapped around twice, or where a counter
        seems to have spent more than anything can draw: it was set back (counted in :attr:`rejected`).

        Raises:
            NotAvailableError: a counter can no longer be read.
        """
        now_s, counters = self._clock(), [_number(domain.file) for domain in self._domains]
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
        if max(by_domain_uj) * 1e-6 > _CEILING_W * (interval_s + _SLACK_S):
            self.rejected += 1
            return None
        joules = spent_uj * 1e-6
        return Reading(
            joules=joules,
            interval_s=interval_s,
            watts=joules / interval_s,
            source=self.source,
            reader=self.name,
            scope=self.scope,
            device=self.device,
        )

    def close(self) -> None:
        """Nothing is held: each reading opens and closes the files."""


def _spent_uj(domain: _Domain, now_uj: int) -> int:
    spent_uj = now_uj - domain.last_uj
    return spent_uj if spent_uj >= 0 else spent_uj + domain.range_uj


def _find_domains(root: Path) -> list[_Domain]:
    # intel-rapl-mmio:* shows the same packages through another door, so only intel-rapl:* is read
    folders = sorted(root.glob("intel-rapl:*")) if root.is_dir() else []
    names = {folder.name: _text(folder / "name") for folder in folders if (folder / "name").exists()}
    found = []
    for folder in folders:
        label = names.get(folder.name, "")
        parent = names.get(folder.name.rpartition(":")[0], "")
        if label.startswith("package"):
            found.append(_open_domain(folder, label))
        elif label == "dram":
            found.append(_open_domain(folder, f"{parent}/{label}" if parent else label))
    if not found:
        raise NotAvailableError(
            f"no RAPL energy counter under {root}. Virtual machines and containers rarely pass it through; on a "
            "physical Linux machine load it with `modprobe intel_rapl_msr`. Energy is modelled meanwhile."
        )
    return found


def _open_domain(folder: Path, label: str) -> _Domain:
    file = folder / "energy_uj"
    return _Domain(label, file, range_uj=_number(folder / "max_energy_range_uj"), last_uj=_number(file))


def _number(file: Path) -> int:
    text = _text(file)
    if not text.isdigit():
        raise NotAvailableError(f"the RAPL file {file} holds {text!r}; a whole number of microjoules is needed.")
    return int(text)


def _text(file: Path) -> str:
    try:
        return file.read_text().strip()
    except PermissionError as error:
        raise NotAvailableError(
            f"permission refused on the RAPL file {file}: Linux lets only root read it. "
            f"Allow it until the next boot with `sudo chmod a+r {file.parent.parent}/intel-rapl:*/energy_uj`."
        ) from error
    except OSError as error:
        raise NotAvailableError(
            f"cannot read the RAPL file {file}: {error.strerror}. Check that the powercap driver is loaded."
        ) from error
