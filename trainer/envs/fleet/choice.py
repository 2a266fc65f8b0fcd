"""Makes the Fleet provider from a spec and the process's environment.

The key comes from `FLEET_API_KEY` of the runner's environment and from nowhere else; it is in no
spec, no error and no log.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from hillclimb.spec.environment.fleet import DEFAULT_BASE_URL, output_limit
from hillclimb.spec.hosts import is_loopback
from hillclimb.spec.run import RunSpec
from trainer.attempt.destinations import allowed_hosts, check_own_machine
from trainer.envs.fleet.instances.instances import LeaseOptions
from trainer.envs.fleet.provider import FleetProvider
from trainer.envs.fleet.wire.api import FleetAccount
from trainer.envs.fleet.wire.sizes import MIB, Sizes
from trainer.errors import SpecError
from trainer.inputs.accepted_paths import own_version, require_accepted

BASE_URL, API_KEY = "FLEET_BASE_URL", "FLEET_API_KEY"
TTL_FACTOR, TTL_MARGIN_S = 1.25, 60.0
"""An instance's default lifetime: this much more than a rollout's longest time."""
OPERATION_SHARE = 1.0 / 3.0
"""Share of `call_timeout_s` for one request, so that two retries fit."""


def account_of(spec: RunSpec, environ: Mapping[str, str] | None = None) -> FleetAccount:
    """Return the platform's address from the spec, and its key from the environment.

    Raises:
        SpecError: there is no key, the platform is nowhere that the operator allows, or it was
            never tested and the run is not experimental.
    """
    environ = os.environ if environ is None else environ
    named = environ.get(BASE_URL) or DEFAULT_BASE_URL
    url = spec.environment.fleet.base_url or named
    if not is_loopback(url):
        require_accepted(
            spec,
            "fleet",
            subject=url,
            present=own_version(),
            never=f"environment.provider fleet would use {url}, and it was never run against"
            " anything but a server on this machine",
            instead=f"set environment.fleet.base_url (or {BASE_URL} of the runner) to such a"
            " server (`hillclimb fleet serve` starts one)",
        )
    if not is_loopback(url) and url.rstrip("/") not in (named.rstrip("/"), DEFAULT_BASE_URL):
        raise SpecError(
            f"environment.fleet.base_url is {url}, and the runner's key goes only to the platform"
            f" that its operator names: leave it out, or set {BASE_URL} in the runner's environment"
        )
    if url.rstrip("/") != named.rstrip("/"):
        check_own_machine("environment.fleet.base_url", url, allowed_hosts(environ))
    key = environ.get(API_KEY, "").strip()
    if not key:
        raise SpecError(
            f"environment.provider fleet needs a key: set {API_KEY} in the runner's environment"
        )
    allowed = allowed_hosts(environ, operators_url=environ.get(BASE_URL))
    return FleetAccount(base_url=url, key=key, allowed=allowed)


def lease_options_of(spec: RunSpec, tag: str) -> LeaseOptions:
    """Return the tag, lifetime and heartbeat of an attempt's instances."""
    fleet, environment = spec.environment.fleet, spec.environment
    own = (each.call_timeout_s for each in environment.overrides.values())
    call_s = [environment.call_timeout_s, *(each for each in own if each)]
    lifetime = TTL_FACTOR * environment.longest_rollout_s + TTL_MARGIN_S
    return LeaseOptions(
        run_tag=tag,
        ttl_s=fleet.ttl_s or int(lifetime),
        heartbeat_interval_s=fleet.heartbeat_interval_s,
        operation_s=fleet.operation_timeout_s or OPERATION_SHARE * min(call_s),
        region=fleet.region,
    )


def fleet_provider(
    spec: RunSpec,
    tag: str,
    environ: Mapping[str, str] | None = None,
    *,
    worker: int = 0,
    num_workers: int = 1,
) -> FleetProvider:
    """Make the provider of one rollout worker.

    `num_workers`: number of the run's providers, which share `fleet.max_instances`.

    Raises:
        SpecError: as `account_of`.
    """
    fleet = spec.environment.fleet
    # Rollout workers do not coordinate, so each gets a fixed share of the bound.
    share, remainder = divmod(fleet.max_instances, num_workers)
    share += worker < remainder
    return FleetProvider(
        account_of(spec, environ),
        spec.data.env_keys,
        lease_options_of(spec, tag),
        max_instances=share,
        partial_reward=fleet.partial_reward,
        sizes=Sizes(
            max_message_bytes=fleet.max_message_mib * MIB,
            max_output_chars=output_limit(fleet, spec.prompt),
        ),
    )
