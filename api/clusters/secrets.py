"""Node secrets: variables of the service's environment that every rented node receives."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from api.clusters.errors import NoEligibleHardware
from hillclimb.hardware.node_prerequisites import is_fresh
from hillclimb.spec.hosts import FOR_RUNS, OPERATORS_HOSTS
from hillclimb.spec.rules.addresses import NO_HOSTS, Hosts, sent_variables
from hillclimb.spec.rules.required_secrets import required_secrets
from hillclimb.spec.run import RunSpec
from hillclimb.spec.sections import RUNNER_ONLY_KINDS

MIN_VALUE_CHARS = 6
"""A shorter value is not distinct from other text, so it could not be redacted from logs."""
PLATFORMS = ("FLEET_", "WANDB_", "MLFLOW_", "TINKER_", "HF_")
"""Beginnings of variables of platforms, which only runs that use the platform receive."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class InvalidNodeSecrets(ValueError):
    """HILLCLIMB_NODE_SECRETS names a variable that cannot be sent; the message has the remedy."""


def node_secrets(names: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that `names` lists, with spaces or commas between.

    Raises InvalidNodeSecrets; no value is part of a message.
    """
    return {name: _value(name, environ) for name in re.split(r"[\s,]+", names) if name}


def needed_secrets(
    spec: RunSpec, operators: Mapping[str, str], hosts: Hosts = NO_HOSTS
) -> dict[str, str]:
    """Return those of the operator's variables that the run's trainer needs.

    A platform's variables go to runs that use the platform, and `RUN_SECRET_…` to runs that send it
    to `hosts` of it. Any other one is of the machines themselves, such as the credentials of the
    blob store, and goes to all.
    """
    used = _platforms(spec)
    sent = sent_variables(spec, hosts)
    return {
        name: value
        for name, value in operators.items()
        if (name in sent if name.startswith(FOR_RUNS) else _platform_of(name) in (None, *used))
    }


def _platforms(spec: RunSpec) -> tuple[str, ...]:
    uses = {
        "FLEET_": spec.environment.provider == "fleet",
        "WANDB_": spec.tracking.wandb.mode == "online",
        "MLFLOW_": spec.tracking.mlflow is not None,
        "TINKER_": spec.backend.tinker_server is not None,
        "HF_": spec.model.source.startswith("hf:"),
    }
    assert set(uses) == set(PLATFORMS)
    return tuple(prefix for prefix, is_used in uses.items() if is_used)


def _platform_of(name: str) -> str | None:
    return next((prefix for prefix in PLATFORMS if name.startswith(prefix)), None)


def require_node_secrets(spec: RunSpec, names: Collection[str], hosts: Hosts = NO_HOSTS) -> None:
    """Reject fresh machines for a run that requires a secret which neither `names` nor it has.

    An operator's `RUN_SECRET_…` counts only if it may be sent where the spec sends it.

    Images, and an operator's own Slurm or Kubernetes, may have secrets of their own: they are not
    checked. Raises NoEligibleHardware.
    """
    sky = spec.backend.skypilot
    if sky is None or spec.kind in RUNNER_ONLY_KINDS:
        return
    fresh = [each for each in sky.candidates if is_fresh(each)]
    sent = sent_variables(spec, hosts)
    own = {each for each in names if not each.startswith(FOR_RUNS) or each in sent}
    present = {*own, *(name for name, secret in spec.secrets.items() if secret is not None)}
    missing = {name: why for name, why in required_secrets(spec).items() if name not in present}
    if fresh and missing:
        name, why = next(iter(missing.items()))
        raise NoEligibleHardware(
            f"{why} needs {name}, which machines on {fresh[0].cloud} would not have: store it"
            f" with `hillclimb secrets set NAME` and name it in the spec (secrets:"
            f" {{{name}: NAME}}), or set it in the service's environment, and add its name to"
            " HILLCLIMB_NODE_SECRETS"
            f" (there: {' '.join(sorted(names)) or 'nothing'})"
            + (f" and its hosts to {OPERATORS_HOSTS}" if name.startswith(FOR_RUNS) else "")
        )


def _value(name: str, environ: Mapping[str, str]) -> str:
    if not _NAME.fullmatch(name):
        raise InvalidNodeSecrets(
            f"HILLCLIMB_NODE_SECRETS lists names of variables, and {name[:40]!r} is none"
        )
    value = environ.get(name)
    if not value:
        raise InvalidNodeSecrets(
            f"HILLCLIMB_NODE_SECRETS names {name}, which is not set in the service's environment:"
            " set it or remove its name"
        )
    if len(value) < MIN_VALUE_CHARS:
        raise InvalidNodeSecrets(
            f"HILLCLIMB_NODE_SECRETS names {name}, whose value has fewer than {MIN_VALUE_CHARS}"
            " characters: too short to be redacted from logs"
        )
    return value
