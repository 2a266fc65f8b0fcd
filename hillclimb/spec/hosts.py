"""What a spec may say of other machines: which addresses are this one, which secrets go there."""

from __future__ import annotations

import ipaddress
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints

FOR_RUNS = "RUN_SECRET_"
"""How the variables of a runner begin that a spec may name; its operator sets them for that."""


def is_loopback(url: str) -> bool:
    """Tell whether a URL names a server on this machine."""
    return is_loopback_host(urlsplit(url).hostname or "")


def is_private(url: str) -> bool:
    """Tell whether nobody on the way to a URL reads along: over TLS, or on this machine."""
    return urlsplit(url).scheme in ("https", "wss") or is_loopback(url)


def is_private_to_nodes(url: str) -> bool:
    """Tell whether rented machines may be told secrets by the service at a URL.

    In private as above, or by its number in a private network (RFC 1918 and such), which is theirs.
    """
    if is_private(url):
        return True
    try:
        return ipaddress.ip_address(urlsplit(url).hostname or "").is_private
    except ValueError:
        return False


def refuse_overheard(setting: str, url: str, secrets: str) -> None:
    """Refuse an address to which secrets would travel in the clear.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if not is_private(url):
        raise ValueError(
            f"{setting} is {url}, and {secrets} over https only: give an address that begins with"
            " https (or wss), or that of a server on the runner's machine"
        )


def is_loopback_host(host: str) -> bool:
    """Tell whether a host is this machine: `localhost`, or an address, never a name like one."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_for_runs(name: str) -> str:
    if not name.startswith(FOR_RUNS) or name == FOR_RUNS:
        raise ValueError(
            f"a spec may name only variables that the runner's operator set for runs, and {name}"
            f" is none: they begin with {FOR_RUNS}"
        )
    return name


SecretVariable = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"),
    AfterValidator(_is_for_runs),
]
"""A variable of the runner's environment, named by a spec, whose value is sent to an address of the
spec's choice. Any other variable (cloud credentials) must stay where it is."""
