"""Addresses that a request may go to when somebody else chose the server's name.

A name is resolved once, every address it has is checked, and the connection goes to a checked
address: a second resolution could answer with a private one (DNS rebinding).
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from hillclimb.spec.hosts import SECRET_HOST_PATTERN, is_sent_to

PRIVATE_HOSTS = "HILLCLIMB_RUN_PRIVATE_HOSTS"
"""The variable by which the operator of a runner opens private addresses to specs."""
OWN_MACHINE, NONE = "loopback", "none"
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_LOOPBACK = (ipaddress.ip_network("127.0.0.0/8"), ipaddress.ip_network("::1/128"))
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_NEVER_PUBLIC = tuple(
    ipaddress.ip_network(each)
    # Azure's platform; protocols (Oracle's metadata too); NAT64 of a site; IPv4 in IPv6; sites.
    for each in ("168.63.129.16/32", "192.0.0.0/24", "64:ff9b:1::/48", "::/96", "fec0::/10")
)
_METADATA = tuple(
    ipaddress.ip_network(each)
    for each in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::/32",
        "168.63.129.16/32",
        "192.0.0.192/32",
    )
)
"""Addresses of the machine's own cloud, which hand out its credentials."""


class HostRefused(OSError):
    """A host has an address that requests may not go to."""


class UnknownHost(OSError):
    """A name has no address."""


@dataclass(frozen=True, slots=True)
class AllowedHosts:
    """Addresses and hosts that may be reached beside public addresses."""

    networks: tuple[Network, ...] = ()
    names: tuple[str, ...] = ()
    """Names of hosts, of the form `SecretHost`. A name opens no address of the machine's cloud."""

    @classmethod
    def parse(cls, setting: str) -> AllowedHosts:
        """Read `loopback`, `none`, names, addresses and ranges, with spaces or commas between.

        Raises:
            ValueError: an entry of another form; the message names it.
        """
        networks: list[Network] = []
        names: list[str] = []
        for entry in re.split(r"[\s,]+", setting.strip().lower()):
            if entry in (OWN_MACHINE, "localhost"):
                networks += _LOOPBACK
            elif (network := _network(entry)) is not None:
                networks.append(network)
            elif re.fullmatch(SECRET_HOST_PATTERN, entry) and not _is_like_an_address(entry):
                names.append(entry)
            elif entry not in ("", NONE):
                raise ValueError(
                    f"{PRIVATE_HOSTS} lists {OWN_MACHINE}, names of hosts, addresses and ranges"
                    f" such as 10.1.0.0/16 (or {NONE}), and {entry[:80]!r} is none of them"
                )
        return cls(tuple(networks), tuple(names))

    @classmethod
    def of_trainer(cls, environ: Mapping[str, str]) -> AllowedHosts:
        """Return what a trainer may reach.

        Runner and node always set the variable. Without it somebody started the trainer by hand,
        who may reach the servers of the own machine. Raises ValueError as `parse`.
        """
        return cls.parse(environ.get(PRIVATE_HOSTS, OWN_MACHINE))

    def with_server(self, url: str | None) -> AllowedHosts:
        """Return these and the host of a URL that the operator set."""
        host = urlsplit(url or "").hostname
        if not host:
            return self
        also = AllowedHosts.parse(host)
        return replace(self, networks=self.networks + also.networks, names=self.names + also.names)

    def check(self, host: str, address: str) -> None:
        """Raise HostRefused for an address of a host that is neither public nor allowed."""
        if not self.allow(host, ipaddress.ip_address(address)):
            raise HostRefused(f"{host} has an address that is not public")

    def allow(self, host: str, address: Address) -> bool:
        """Return True for a public address, and for those that these allow."""
        address = getattr(address, "ipv4_mapped", None) or address
        if any(address in network for network in self.networks):
            return True
        by_name = is_sent_to(f"//{host}", self.names) and not any(
            address in network for network in _METADATA
        )
        return by_name or is_public(address)


NO_HOSTS = AllowedHosts()
OWN_MACHINE_HOSTS = AllowedHosts(_LOOPBACK)


def is_public(address: Address) -> bool:
    """Return True for a unicast address that everybody can reach, whatever network it is in."""
    if isinstance(address, ipaddress.IPv6Address):
        embedded = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if address in _NAT64:
            embedded = ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
        if embedded is not None:
            return is_public(embedded)
    if any(address in network for network in _NEVER_PUBLIC):
        return False
    return address.is_global and not address.is_multicast


def checked_addresses(host: str, port: int, allowed: AllowedHosts) -> tuple[str, ...]:
    """Return the addresses of a host.

    Raises:
        UnknownHost: it has none.
        HostRefused: one of them is neither public nor allowed.
    """
    try:
        records = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UnknownHost(f"{host} has no address") from None
    return _checked(host, records, allowed)


async def checked_addresses_async(host: str, port: int, allowed: AllowedHosts) -> tuple[str, ...]:
    """As `checked_addresses`, without blocking the event loop."""
    loop = asyncio.get_running_loop()
    try:
        records = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise UnknownHost(f"{host} has no address") from None
    return _checked(host, records, allowed)


def _checked(host: str, records: Sequence[Any], allowed: AllowedHosts) -> tuple[str, ...]:
    addresses = tuple(dict.fromkeys(str(each[4][0]).partition("%")[0] for each in records))
    for address in addresses:
        allowed.check(host, address)
    return addresses


def _network(entry: str) -> Network | None:
    try:
        return ipaddress.ip_network(entry, strict=False)
    except ValueError:
        return None


def _is_like_an_address(entry: str) -> bool:
    """Tell a mistyped address or range from a name: the last label of a name is no number."""
    return ":" in entry or entry.rpartition(".")[2].isdigit()
