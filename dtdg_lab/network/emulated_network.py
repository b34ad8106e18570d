"""State of the links during a run, by pattern and by option, and the mechanisms that slow them down."""

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

# Links made slow by the kernel instead of the process that serves features.


LOOPBACK = "127."


class KernelLinks:
    """Traffic control on this machine's loopback device, set up by one rank for the servers of all parts.

    Args:
        addresses: where each part's features are served.
        leads: whether this rank sets it up.

    Raises:
        NotAvailableError: a part is served on another machine, or traffic control cannot be used here.
    """

    def __init__(self, addresses: Mapping[int, str], *, leads: bool) -> None:
        addresses_by_part = {part: address.rpartition("//")[2].rpartition(":") for part, address in addresses.items()}
        elsewhere = [part for part, (host, _, _) in addresses_by_part.items() if not host.startswith(LOOPBACK)]
        if elsewhere:
            raise NotAvailableError(
                f"congestion_by='netem' with part(s) {elsewhere} served over a network: the lab shapes the loopback "
                "device of one machine alone. Set congestion_by='emulated', which works anywhere."
            )
        self._ports, self._leads = {part: int(port) for part, (_, _, port) in addresses_by_part.items()}, leads
        self._netem: NetemLinks | None = None
        self._start()

    def set_links(self, links: LinkState) -> None:
        """Slow down packets from the servers' ports; in force when this returns. Start again if closed."""
        self._start()
        if self._netem is not None:
            self._netem.set_links(links)

    def close(self) -> None:
        """Give the device back as it was; a second call does nothing."""
        if self._netem is not None:
            self._netem.close()
        self._netem = None

    def _start(self) -> None:
        if self._leads and self._netem is None:
            netem = NetemLinks("lo", self._ports, state_root() / NETEM)
            netem.start()
            self._netem = netem


class Slowed(Protocol):
    """A way to make links between parts slow."""

    def set_links(self, links: LinkState) -> None:
        """Apply links from now on; after :meth:`close` this may start again."""
        ...

    def close(self) -> None:
        """Leave nothing behind."""
        ...


def _check_alike(links: LinkState, option_text: str) -> None:
    """Refuse links that the kernel cannot distinguish: of one owner, to requesters with the same address."""
    for owner in range(links.parts):
        asking = np.arange(links.parts) != owner
        if len({*zip(links.delay_s[owner, asking], links.bytes_per_s[owner, asking], strict=True)}) > 1:
            raise ConfigError(
                f"{option_text} with congestion_by='netem': the kernel cannot distinguish part {owner}'s requesters, "
                f"which have the same address. Give all of them the same ('{owner} delay=...'), or set "
                "congestion_by='emulated'."
            )


def _check_for_kernel(config: RunConfig, by_hand: LinkState, pattern: Pattern) -> None:
    """Refuse what traffic control cannot do. Patterns but for a recorded one slow down all of an owner's links alike.

    Raises:
        ConfigError: nothing is served from ports, or an owner's links differ.
    """
    if "features" not in catalogue.system(config.system).parts:
        raise ConfigError(
            f"congestion_by='netem' with system={config.system!r}, whose ranks exchange rows within the process group: "
            "the kernel shapes the ports that features are served from. Set congestion_by='emulated'."
        )
    _check_alike(by_hand, f"links={config['links']!r}")
    for state in pattern.states if isinstance(pattern, RecordedTrace) else ():
        _check_alike(state, f"congestion_file={shortened(config['congestion_file'])}")


class RankLinks:
    """Exchanges of rows between ranks, made as slow as the links between their parts.

    Args:
        group: of the ranks.
    """

    def __init__(self, group: LinkedGroup) -> None:
        self._group = group

    def set_links(self, links: LinkState) -> None:
        """Make exchanges that start from now on so slow."""
        self._group.set_links(links_of_ranks(links, self._group.size))

    def close(self) -> None:
        """Keep the group as it is; the next run has its own."""


class EmulatedNetwork:
    """The links of a run: a pure function of its settings, epoch and place within the epoch.

    Args:
        config: of a system that moves features or rows between parts.
        slowed: what makes them slow; None where nothing crosses a link, as with one rank.

    Raises:
        ConfigError: a link or part does not exist, a pattern, delay or rate makes no sense, or traffic control is asked
            for what it cannot do.
    """

    def __init__(self, config: RunConfig, slowed: Slowed | None = None) -> None:
        self._slowed = slowed
        self._now: LinkState | None = None  # in force
        self._described: LinkState | None = None
        self.use(config)

    def use(self, config: RunConfig) -> None:
        """Be as another config has it; nothing has changed where it is refused.

        Raises:
            ConfigError: as of the constructor.
        """
        by_hand = parse_links(config["links"], config.parts)
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
            _check_for_kernel(config, by_hand, pattern)
        self._config, self._by_hand, self._pattern = config, by_hand, pattern

    @staticmethod
    def validate_settings(config: RunConfig) -> str:
        """Why links cannot be as a config has them; empty where they can. The same on all ranks."""
        try:
            EmulatedNetwork(config)
        except LabError as error:
            return str(error)
        return ""

    def at(self, epoch: int, share: float = 0.0) -> LinkState:
        """Return the links when ``share`` of an epoch has passed, 0 to less than 1."""
        return self._pattern.at(epoch, share).with_(self._by_hand)

    def close(self) -> None:
        """Leave links as they were found; a second call does nothing."""
        if self._slowed is not None:
            self._slowed.close()

    def release(self) -> None:
        """Release a device with traffic control, so that another run can use it; :meth:`follow` acquires it again."""
        if self._slowed is not None and self._config["congestion_by"] == "netem":
            self._slowed.close()
            self._now = None

    def follow(self, epoch: int, share: float) -> dict[str, Any] | None:
        """Make the links as they are to be at a step; the event ``congestion`` where that is another state.

        There is none where nothing crosses a link.
        """
        if self._slowed is None:
            return None
        links = self.at(epoch, share)
        if links != self._now and not (self._now is None and links.is_clean):
            self._slowed.set_links(links)
        self._now = links
        if links == self._described:
            return None
        self._described = links
        return {"pattern": self._config["congestion"], **links.to_dict(), "by": self._config["congestion_by"]}
