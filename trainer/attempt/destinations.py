"""Servers that a spec names: which of them the operator of the machine lets a trainer reach."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from urllib.parse import urlsplit

from hillclimb.process.network.addresses import (
    OWN_MACHINE,
    PRIVATE_HOSTS,
    AllowedHosts,
    HostRefused,
)
from hillclimb.process.network.connections import check_server
from hillclimb.spec.hosts import is_loopback
from trainer.errors import SpecError


def allowed_hosts(
    environ: Mapping[str, str] | None = None, *, operators_url: str | None = None
) -> AllowedHosts:
    """Return what this process may reach beside public addresses.

    `operators_url`: a server that the operator named in the environment, which is allowed too.

    Raises:
        SpecError: the operator's setting cannot be read.
    """
    try:
        hosts = AllowedHosts.of_trainer(os.environ if environ is None else environ)
    except ValueError as error:
        raise SpecError(str(error)) from error
    return hosts.with_server(operators_url)


async def check_destination(setting: str, url: str, allowed: AllowedHosts) -> None:
    """Check where a spec's address leads before anything is sent.

    The connections check it again, since a name may lead elsewhere by then.

    Raises:
        SpecError: it leads to an address that is neither public nor allowed.
    """
    try:
        await check_server(url, allowed)
    except HostRefused as refused:
        raise not_allowed(setting, url) from refused


def check_own_machine(setting: str, url: str, allowed: AllowedHosts) -> None:
    """Check that a server on this machine is one that runs may use; any other one passes.

    Raises:
        SpecError: the operator does not open this machine to runs.
    """
    host = urlsplit(url).hostname or ""
    address = "127.0.0.1" if host == "localhost" else host
    if is_loopback(url) and not allowed.allow(host, ipaddress.ip_address(address)):
        raise not_allowed(setting, url)


def not_allowed(setting: str, url: str) -> SpecError:
    """Return the error for an address to which the operator lets no run connect."""
    return SpecError(
        f"{setting} is {url}, which is no public address, and this runner's operator opens none"
        f" such to it: use a public server, or have the operator add its host to {PRIVATE_HOSTS}"
        f" ({OWN_MACHINE}: servers on the runner's own machine)"
    )
