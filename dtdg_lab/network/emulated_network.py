"""Links during a run, by pattern and option, and the mechanisms that slow them down."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from dtdg_lab.config import catalogue
from dtdg_lab.config.run_config import RunConfig
from dtdg_lab.core.errors import ConfigError, LabError, NotAvailableError, shortened
from dtdg_lab.core.units import NETEM, state_root
from dtdg_lab.network.linked_group import LinkedGroup
from dtdg_lab.network.links import LinkState, links_of_ranks, parse_links
from dtdg_lab.network.netem import NetemLinks
from dtdg_lab.network.patterns import Pattern, make_pattern
from dtdg_lab.network.traces import RecordedTrace

LOOPBACK = "127."


class KernelLinks:
    """Links slowed by the kernel's traffic control on the loopback device, set up by one rank for all feature servers.

    Args:
        addresses: address of each part's feature server.
        leads: whether this rank sets it up.

    Raises:
        NotAvailableError: a part is served on another machine, or traffic control cannot be used here.
    """

    def __init__(self, addresses: Mapping[int, str], *, leads: bool) -> None:
        addresses_by_part = {part: address.rpartition("//")[2].rpartition(":") for part, address in addresses.items()}
        elsewhere = [part for part, (host, _, _) in addresses_by_part.items() if not host.startswith(LOOPBACK)]
        if elsewhere:
            raise NotAvailableError(
                f"congestion_by='netem' is not possible, because part(s) {elsewhere} are served over a network: it "
                "shapes only the loopback device of one machine. Set congestion_by='emulated', which works anywhere."
            )
        self._ports, self._leads = {part: int(port) for part, (_, _, port) in addresses_by_part.items()}, leads
        self._netem: NetemLinks | None = None
        self._start()

    def set_links(self, links: LinkState) -> None:
        """Slow down packets from the servers' ports, at once; start again if closed."""
        self._start()
        if self._netem is not None:
            self._netem.set_links(links)

    def close(self) -> None:
        """Restore the device; a second call does nothing."""
        if self._netem is not None:
            self._netem.close()
        self._netem = None

    def _start(self) -> None:
        if self._leads and self._netem is None:
            netem = NetemLinks("lo", self._ports, state_root() / NETEM)
            netem.start()
            self._netem = netem


class SlowableLinks(Protocol):
    """A mechanism that slows links between parts down."""

    def set_links(self, links: LinkState) -> None:
        """Apply a state of the links from now on; this may restart the mechanism after :meth:`close`."""
        ...

    def close(self) -> None:
        """Undo all changes."""
        ...


def _check_alike(links: LinkState, option_text: str) -> None:
    """Refuse different links of one owner to requesters with the same address, which the kernel cannot distinguish."""
    for owner in range(links.parts):
        asking = np.arange(links.parts) != owner
        if len({*zip(links.delay_s[owner, asking], links.bytes_per_s[owner, asking], strict=True)}) > 1:
            raise ConfigError(
                f"{option_text} with congestion_by='netem': the kernel cannot distinguish part {owner}'s requesters, "
                f"which have the same address. Give all of them the same link ('{owner} delay=...'), or set "
                "congestion_by='emulated'."
            )


def _check_for_kernel(config: RunConfig, option_links: LinkState, pattern: Pattern) -> None:
    """Refuse links that traffic control cannot emulate.

    Only links by option and recorded traces can differ between an owner's requesters.

    Raises:
        ConfigError: the system serves no features, or an owner's links differ.
    """
    if "features" not in catalogue.system(config.system).parts:
        raise ConfigError(
            f"congestion_by='netem' does not work with system={config.system!r}, whose ranks exchange rows within the "
            "process group: it shapes only ports of feature servers. Set congestion_by='emulated'."
        )
    _check_alike(option_links, f"links={config['links']!r}")
    for state in pattern.states if isinstance(pattern, RecordedTrace) else ():
        _check_alike(state, f"congestion_file={shortened(config['congestion_file'])}")


class RankLinks:
    """Exchanges of rows between ranks, slowed down by the links between their parts.

    Args:
        group: group of the ranks.
    """

    def __init__(self, group: LinkedGroup) -> None:
        self._group = group

    def set_links(self, links: LinkState) -> None:
        """Slow down exchanges that start from now on."""
        self._group.set_links(links_of_ranks(links, self._group.size))

    def close(self) -> None:
        """Do nothing: the next run has its own group."""


class EmulatedNetwork:
    """The links of a run: a pure function of its settings, epoch and share of the epoch.

    Args:
        config: settings of a system that moves features or rows between parts.
        slowed: mechanism that slows links down; None if nothing crosses a link, as with one rank.

    Raises:
        ConfigError: a link or part does not exist, a pattern, delay or rate is out of bounds, or traffic control cannot
            emulate the links.
    """

    def __init__(self, config: RunConfig, slowed: SlowableLinks | None = None) -> None:
        self._slowed = slowed
        self._current: LinkState | None = None
        self._recorded: LinkState | None = None
        self.use(config)

    def use(self, config: RunConfig) -> None:
        """Use another config; after an error the old one stays.

        Raises:
            ConfigError: as in the constructor.
        """
        option_links = parse_links(config["links"], config.parts)
        pattern: Pattern = make_pattern(
            config["congestion"],
            parts=config.parts,
            seed=config.seed,
            delay_ms=config["congestion_ms"],
            mbit=config["congestion_mbit"],
            first_epoch=config["congestion_from"],
            cycle=config["congestion_cycle"],
            table=config["congestion_table"],
            file=config["congestion_file"],
            epochs=config.epochs,
            settings=config.options.get("congestion", {}),
        )
        if config["congestion_by"] == "netem":
            _check_for_kernel(config, option_links, pattern)
        self._config, self._option_links, self._pattern = config, option_links, pattern

    @staticmethod
    def validate_settings(config: RunConfig) -> str:
        """Return why the links of a config are not possible, the same on all ranks; empty if they are."""
        try:
            EmulatedNetwork(config)
        except LabError as error:
            return str(error)
        return ""

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """Return the links after a ``share`` of an epoch, 0 to less than 1."""
        return self._pattern.at(epoch, share).with_(self._option_links)

    def close(self) -> None:
        """Restore the links; a second call does nothing."""
        if self._slowed is not None:
            self._slowed.close()

    def release(self) -> None:
        """Release a device with traffic control, so that another run can use it; :meth:`follow` acquires it again."""
        if self._slowed is not None and self._config["congestion_by"] == "netem":
            self._slowed.close()
            self._current = None

    def follow(self, epoch: int, share: float) -> dict[str, Any] | None:
        """Apply the links of a step; return the data of an event ``congestion`` if they have changed, else None."""
        if self._slowed is None:
            return None
        links = self.at(epoch, share)
        if links != self._current and not (self._current is None and links.is_clean):
            self._slowed.set_links(links)
        self._current = links
        if links == self._recorded:
            return None
        self._recorded = links
        return {"pattern": self._config["congestion"], **links.to_dict(), "by": self._config["congestion_by"]}
