"""Where a dashboard is served: its address, port and prefix, and the hosts whose pages may connect to it."""

from __future__ import annotations

import errno
import ipaddress
import operator
import re
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from tornado.netutil import bind_sockets

from dtdg_lab.core.errors import ConfigError, shortened

_PREFIX = re.compile(r"[A-Za-z0-9._~@%-]+(/[A-Za-z0-9._~@%-]+)*")
_HOST = re.compile(r"[a-z0-9]([a-z0-9_.-]*[a-z0-9])?")
_USUAL_PORTS = (80, 443)  # browsers leave them out of an origin
_MOST_PORTS = 65_535


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A free port of this machine, and who may connect.

    Attributes:
        address: to listen on.
        port: to listen on.
        prefix: of all paths, without slashes at its ends; empty for none.
        origins: hosts, with their ports, of pages that may connect, as Bokeh compares them.
    """

    address: str
    port: int
    prefix: str
    origins: tuple[str, ...]

    @classmethod
    def open(
        cls, port: int = 0, address: str = "127.0.0.1", *, prefix: str = "", allow_origin: str | Iterable[str] = ()
    ) -> Endpoint:
        """Return the endpoint of these settings; its port can be opened now.

        Args:
            port: where to listen; 0 takes a free port.
            address: interface to listen on, such as ``127.0.0.1``, ``::1`` or ``0.0.0.0``.
            prefix: of all paths.
            allow_origin: hosts under which a proxy shows the page, such as ``lab.example.org`` or
                ``lab.example.org:8443``.

        Raises:
            ConfigError: one of them is not allowed, or the port is taken.
        """
        address = _parse_address(address)
        prefix = _parse_prefix(prefix)
        several = isinstance(allow_origin, Iterable) and not isinstance(allow_origin, str)
        hosts = [_parse_origin(host) for host in (allow_origin if several else [allow_origin])]
        port = _find_port(address, _parse_port(port))
        own_hosts = [_bracketed(_reachable(address)), "localhost", "127.0.0.1"]
        own_hosts += [socket.gethostname().lower()] if _reachable(address) != address else []
        return cls(address, port, prefix, tuple(dict.fromkeys([*(f"{host}:{port}" for host in own_hosts), *hosts])))

    @property
    def host(self) -> str:
        """A host at which this machine reaches it."""
        return _reachable(self.address)

    @property
    def url(self) -> str:
        """The address of the page on this machine."""
        path = f"{self.prefix}/" if self.prefix else ""
        return f"http://{_bracketed(self.host)}:{self.port}/{path}"


def _reachable(address: str) -> str:
    """Return the address; of one that stands for all interfaces, the loopback's."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(address, address)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _parse_port(port: object) -> int:
    try:
        number = -1 if isinstance(port, bool) else operator.index(port)  # type: ignore[arg-type]
    except TypeError:
        number = -1
    if not 0 <= number <= _MOST_PORTS:
        raise ConfigError(
            f"port={shortened(port)} is not a port: give a whole number from 0 to {_MOST_PORTS}; 0 takes a free one."
        )
    return number


def _parse_address(address: object) -> str:
    text = address.strip().removeprefix("[").removesuffix("]") if isinstance(address, str) else ""
    if not text:
        raise ConfigError(
            f"address={shortened(address)} is not an address: give 127.0.0.1 or ::1 for this machine only, or 0.0.0.0 "
            "or :: for all its interfaces."
        )
    return text


def _parse_prefix(prefix: object) -> str:
    text = prefix.strip("/") if isinstance(prefix, str) else "?"
    if text and (not _PREFIX.fullmatch(text) or {".", ".."} & set(text.split("/"))):
        raise ConfigError(
            f"prefix={shortened(prefix)} is not a path: give letters, digits and . _ ~ @ % - between slashes, such as "
            "'lab' or 'user/ada/lab'."
        )
    return text


def _parse_origin(origin: object) -> str:
    """Return the host and port of an origin as Bokeh compares it.

    Raises:
        ConfigError: it is not a host.
    """
    advice = "Give the host that the browser shows, with its port if it shows one: lab.example.org:8443."
    error = ConfigError(f"allow_origin={shortened(origin)} is not a host. {advice}")
    if not isinstance(origin, str) or not origin.strip():
        raise error
    text = origin.strip()
    with suppress(ValueError):  # an IPv6 address without brackets has no port; anything else is parsed below
        text = _bracketed(str(ipaddress.IPv6Address(text)))
    try:
        parts = urlsplit(text if "://" in text else f"//{text}")
        host, port = parts.hostname or "", parts.port
        host = str(ipaddress.IPv6Address(host)) if ":" in host else host.encode("idna").decode()
    except ValueError as failure:
        raise error from failure
    if "*" in host:
        raise ConfigError(
            f"allow_origin={shortened(origin)} allows pages of many hosts, which could then steer runs. Name each host."
        )
    has_more = parts.path.strip("/") or parts.query or parts.fragment or parts.username is not None
    if has_more or port == 0 or not (":" in host or _HOST.fullmatch(host)):
        raise error
    if port is None or port in _USUAL_PORTS:
        return _bracketed(host) if ":" in host else f"{host}:80"  # what Bokeh takes an origin without a port for
    return f"{_bracketed(host)}:{port}"


def _find_port(address: str, port: int) -> int:
    """Return the port, or a free one for 0; the server's thread could not report that it is taken."""
    try:
        sockets = bind_sockets(port, address)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        if isinstance(error, OSError) and error.errno in (errno.EADDRINUSE, errno.EACCES):
            raise ConfigError(
                f"port={port} of {address} cannot be opened: {reason}. Take another one, or 0 for a free one."
            ) from error
        raise ConfigError(
            f"address={shortened(address)} cannot be listened on: {reason}. Give an address of this machine: 127.0.0.1 "
            "or ::1 for this machine only, or 0.0.0.0 or :: for all its interfaces."
        ) from error
    bound_port: int = sockets[0].getsockname()[1]
    for opened in sockets:
        opened.close()
    return bound_port
