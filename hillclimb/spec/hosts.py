"""Rules for addresses and secret variables in a spec: secrets travel only in private."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints

FOR_RUNS = "RUN_SECRET_"
"""Prefix of the runner's variables that a spec may name; the runner's operator sets them."""


_FOR_TRAINERS = re.compile(
    r"(?:.*_)?(?:TOKEN|SECRET|PASSWORD|KEY|CREDENTIALS)|AWS_ACCESS_KEY_ID|AWS_SECRET_ACCESS_KEY"
    r"|RUN_SECRET_.+"
)
_OF_THE_SERVICE = ("HILLCLIMB_", "RAY_", "VLLM_", "PYTHON", "LD_")
"""Prefixes of variables that set up the trainer itself."""


def is_loopback(url: str) -> bool:
    """Tell whether a URL names a server on this machine."""
    return is_loopback_host(urlsplit(url).hostname or "")


def is_private(url: str) -> bool:
    """Tell whether requests to a URL cannot be read in transit: over TLS, or on this machine."""
    return urlsplit(url).scheme in ("https", "wss") or is_loopback(url)


def is_private_to_nodes(url: str) -> bool:
    """Tell whether rented machines may receive secrets from the service at a URL.

    True if `is_private`, or if its host is an IP address of a private network (RFC 1918 and such).
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
            f"{setting} is {url}, but {secrets} over https only: use an address that begins with"
            " https (or wss), or a server on the runner's machine"
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
            f"a spec may name only variables that the runner's operator set for runs, which begin"
            f" with {FOR_RUNS}: {name} does not"
        )
    return name


SecretVariable = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"),
    AfterValidator(_is_for_runs),
]
"""A variable of the runner's environment, named by a spec, whose value is sent to an address that
the spec names. No other variable (cloud credentials) may leave the machine."""


def _is_for_trainers(variable: str) -> str:
    if variable.startswith(_OF_THE_SERVICE) or not _FOR_TRAINERS.fullmatch(variable):
        raise ValueError(
            f"{variable} is no variable for a secret: its name must end in KEY, TOKEN, SECRET,"
            f" PASSWORD or CREDENTIALS, or begin with {FOR_RUNS}, and not with"
            f" {' or '.join(_OF_THE_SERVICE)}"
        )
    return variable


TrainerVariable = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Z][A-Z0-9_]{0,127}$"),
    AfterValidator(_is_for_trainers),
]
"""A variable of the trainer's environment that a secret of the project may set. Others, such as
PATH, could change what a runner executes."""
SECRET_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"  # noqa: S105 (a form of names)
SecretName = Annotated[str, StringConstraints(pattern=SECRET_NAME_PATTERN)]
"""The name of a secret that the service keeps for a project."""
