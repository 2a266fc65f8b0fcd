"""Address and key of the Tinker server, from the spec and the process's environment.

The key comes from `TINKER_API_KEY` of the runner's environment and from nowhere else; it is in no
spec, no error and no log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from hillclimb.process.network.addresses import OWN_MACHINE_HOSTS, AllowedHosts
from hillclimb.spec.backend.tinker import DEFAULT_BASE_URL, TinkerSpec
from hillclimb.spec.hosts import is_loopback, is_private
from trainer.attempt.destinations import allowed_hosts, check_own_machine
from trainer.errors import SpecError
from trainer.inputs.accepted_paths import (
    Leave,
    library_versions,
    own_version,
    require_accepted,
)

BASE_URL, OTHER_BASE_URL, API_KEY = "TINKER_BASE_URL", "TINKER_API_URL", "TINKER_API_KEY"
_KEY_BEGINS = ("tml-", "eyJ")
"""Prefixes that the SDK accepts as a key: an API key or a JWT."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TinkerAccount:
    """Address of the server, and the key for it."""

    base_url: str
    key: str = field(repr=False)
    allowed: AllowedHosts = OWN_MACHINE_HOSTS
    """What the archives of adapters may be at beside public addresses."""


def account_of(
    tinker: TinkerSpec, leave: Leave, environ: Mapping[str, str] | None = None
) -> TinkerAccount:
    """Return the server of the spec, with the key of this process.

    Raises:
        SpecError: there is no key, the server is nowhere that the operator allows, or it was never
            tested and `leave` does not allow it.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(BASE_URL) or environ.get(OTHER_BASE_URL) or DEFAULT_BASE_URL
    url = (tinker.base_url or named).rstrip("/")
    if not is_loopback(url):
        require_accepted(
            leave,
            "tinker",
            subject=url,
            present=own_version() | library_versions("tinker"),
            never=f"backend tinker would use {url}, and it was never run against anything but a"
            " server on this machine",
            instead=f"set backend.tinker.base_url (or {BASE_URL} of the runner) to such a server"
            " (`hillclimb tinker serve` starts one)",
        )
    if not is_loopback(url) and url not in (named.rstrip("/"), DEFAULT_BASE_URL):
        raise SpecError(
            f"backend.tinker.base_url is {url}, and the runner's key goes only to the server that"
            f" its operator names: leave it out, or set {BASE_URL} in the runner's environment"
        )
    if url != named.rstrip("/"):
        check_own_machine("backend.tinker.base_url", url, allowed_hosts(environ))
    if not is_private(url):
        raise SpecError(
            f"the Tinker server is at {url}, and the key travels over https only: give an address"
            " that begins with https, or that of a server on this machine"
        )
    key = environ.get(API_KEY, "").strip()
    if not key.startswith(_KEY_BEGINS) or not key.isascii() or not key.isprintable():
        raise SpecError(
            f"backend tinker needs a key: set {API_KEY} in the runner's environment (it begins with"
            f" {_KEY_BEGINS[0]})"
        )
    allowed = allowed_hosts(environ, operators_url=named)
    return TinkerAccount(base_url=url, key=key, allowed=allowed)
