"""Links made slow by the kernel instead of the process that serves features."""

from __future__ import annotations

from collections.abc import Mapping

from dtdg_lab.congestion.netem import NetemLinks
from dtdg_lab.core.errors import NotAvailableError
from dtdg_lab.core.links import LinkState
from dtdg_lab.core.paths import NETEM, state_root

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
        found = {part: address.rpartition("//")[2].rpartition(":") for part, address in addresses.items()}
        elsewhere = [part for part, (host, _, _) in found.items() if not host.startswith(LOOPBACK)]
        if elsewhere:
            raise NotAvailableError(
                f"congestion_by='netem' with part(s) {elsewhere} served over a network: the lab shapes the loopback "
                "device of one machine alone. Set congestion_by='emulated', which works anywhere."
            )
        self._ports, self._leads = {part: int(port) for part, (_, _, port) in found.items()}, leads
        self._netem: NetemLinks | None = None
        self._start()

    def set_links(self, links: LinkState) -> None:
        """Make packets from the servers' ports so slow; it holds when this returns. Once closed, it starts again."""
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
