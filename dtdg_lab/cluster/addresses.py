"""Addresses of this machine on the network that the ranks of a run share."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

from dtdg_lab.core.errors import ClusterError

if TYPE_CHECKING:
    pass


def outward_address() -> str:
    """Return this machine's address on the network, that of its outgoing interface; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address reserved for documentation: any address selects the interface
            address: str = probe.getsockname()[0]
        except OSError:  # isolated compute nodes have no default route: use the host name
            address = socket.gethostbyname(socket.gethostname())
    if address.startswith("127."):
        raise ClusterError(
            f"ranks run on several machines, but this one ({socket.gethostname()}) only has the loopback address "
            f"{address}. Give its name an address on the shared network (/etc/hosts or DNS)."
        )
    return address


def _keep_gloo_on(host: str, address: str) -> None:
    """Bind gloo to loopback if all ranks are on one machine, otherwise to the outgoing interface.

    A user's setting is kept. By default gloo uses the address of the machine's name, which is often loopback.
    """
    loopback = "lo0" if sys.platform == "darwin" else "lo"
    if host:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback
    elif os.environ.get("GLOO_SOCKET_IFNAME", loopback) == loopback:
        os.environ["GLOO_SOCKET_IFNAME"] = interface_of(address)


def interface_of(address: str) -> str:
    """Return the network interface that has an address.

    Raises:
        ClusterError: no interface has it.
    """
    import psutil

    interfaces = psutil.net_if_addrs()
    for name, addresses in interfaces.items():
        if any(entry.address == address for entry in addresses):
            return str(name)
    raise ClusterError(
        f"no network interface of this machine has the address {address} (interfaces: {', '.join(interfaces)}). Set "
        "GLOO_SOCKET_IFNAME on the engines to the interface that reaches the other machines."
    )
