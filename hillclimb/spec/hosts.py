"""Rules for addresses and secret variables in a spec: secrets travel only in private."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints, WithJsonSchema

S3 = "s3://"
_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]{1,62}")
OPERATORS_HOSTS = "HILLCLIMB_RUN_SECRET_HOSTS"
"""The variable by which operators of runners and services say where their secrets may go."""
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


def is_sent_to(url: str, hosts: Collection[str]) -> bool:
    """Tell whether the host of a URL is among hosts of the form `SecretHost`."""
    host = (urlsplit(url).hostname or "").rstrip(".")
    return any(host.endswith(each[1:]) if each.startswith("*.") else host == each for each in hosts)


def hosts_by_variable(setting: str) -> dict[str, tuple[str, ...]]:
    """Return the hosts of each variable in `VARIABLE=HOST,HOST …`.

    Raises:
        ValueError: an entry of another form; the message names it.
    """
    hosts: dict[str, tuple[str, ...]] = {}
    for entry in setting.split():
        variable, _, listed = entry.partition("=")
        each = tuple(host.lower() for host in listed.split(",") if host)
        if not variable or not each or not all(re.fullmatch(SECRET_HOST_PATTERN, h) for h in each):
            raise ValueError(
                f"{OPERATORS_HOSTS} lists VARIABLE=HOST,HOST with names or addresses of hosts, and"
                f" {entry[:80]!r} is no such entry"
            )
        hosts[variable] = hosts.get(variable, ()) + each
    return hosts


def refuse_settings_in(setting: str, address: str) -> None:
    """Refuse an address on S3 with more than a bucket and a path.

    `?endpoint_url=` would send requests that the operator's credentials sign to any host, and
    `%2F` or `..` would hide which path is meant.

    Raises:
        ValueError: a sentence that names what to change.
    """
    if not address.startswith(S3):
        return
    bucket, _, path = address.removeprefix(S3).partition("/")
    if any(mark in address for mark in "?#"):
        raise ValueError(f"{setting} has a query or a fragment: write s3://BUCKET/PATH")
    odd = "%" in path or "\\" in path or not path.isprintable()
    if odd or not _BUCKET.fullmatch(bucket) or {".", ".."} & set(path.split("/")):
        raise ValueError(
            f"{setting} is {address!r:.300}, which names no place in a bucket: write"
            " s3://BUCKET/PATH without %, .. and control characters"
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


_FORM_FOR_TRAINERS = (
    rf"^(?!{'|'.join(_OF_THE_SERVICE)})(?=[A-Z][A-Z0-9_]{{0,127}}$)"
    r"(([A-Z0-9_]*_)?(TOKEN|SECRET|PASSWORD|KEY|CREDENTIALS)|AWS_ACCESS_KEY_ID|RUN_SECRET_[A-Z0-9_]+)$"
)
"""The same as one pattern, for the schema."""


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
    WithJsonSchema({"type": "string", "pattern": _FORM_FOR_TRAINERS}),
]
"""A variable of the trainer's environment that a secret of the project may set. Others, such as
PATH, could change what a runner executes."""
SECRET_HOST_PATTERN = (
    r"^((\*\.)?[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?|[0-9a-f]{0,4}(:[0-9a-f]{0,4}){2,7})$"  # noqa: S105
)
"""A name, `*.` and a name, or an address, in lower case and without a port."""
SecretHost = Annotated[str, StringConstraints(pattern=SECRET_HOST_PATTERN)]
"""A host to which a secret may be sent; `*.NAME` is every name below NAME."""
SECRET_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"  # noqa: S105 (a form of names)
SecretName = Annotated[str, StringConstraints(pattern=SECRET_NAME_PATTERN)]
"""The name of a secret that the service keeps for a project."""
