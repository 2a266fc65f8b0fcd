"""What the operator gives to every rented node: variables of the service's own environment."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from api.clusters.errors import NoMachineWillDo
from trainer.contract.clusters.strangers import is_fresh
from trainer.contract.spec import LIGHT_KINDS, RunSpec
from trainer.contract.wanted import wanted_secrets

SHORTEST = 6
"""Characters; a shorter value could not be told apart from other text, and so not be masked."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadNodeSecrets(ValueError):
    """HILLCLIMB_NODE_SECRETS names what cannot be given; the message says what to change."""


def node_secrets(names: str, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that `names` lists, with spaces or commas between.

    Raises BadNodeSecrets; no value is part of a message.
    """
    return {name: _value(name, environ) for name in re.split(r"[\s,]+", names) if name}


def refuse_ungiven(spec: RunSpec, given: Collection[str]) -> None:
    """Refuse fresh machines for a run whose trainer would find no key there.

    What stands in an image, or on an operator's own Slurm or Kubernetes, is not known here: those
    are not judged. Raises NoMachineWillDo.
    """
    sky = spec.backend.skypilot
    if sky is None or spec.kind in LIGHT_KINDS:
        return
    fresh = [each for each in sky.candidates if is_fresh(each)]
    missing = {name: why for name, why in wanted_secrets(spec).items() if name not in given}
    if fresh and missing:
        name, why = next(iter(missing.items()))
        raise NoMachineWillDo(
            f"{why} needs {name}, which machines on {fresh[0].cloud} would not have: set it in the"
            " service's environment, and name it in HILLCLIMB_NODE_SECRETS"
            f" (there: {' '.join(sorted(given)) or 'nothing'})"
        )


def _value(name: str, environ: Mapping[str, str]) -> str:
    if not _NAME.fullmatch(name):
        raise BadNodeSecrets(
            f"HILLCLIMB_NODE_SECRETS has names of variables, and {name[:40]!r} is none"
        )
    value = environ.get(name)
    if not value:
        raise BadNodeSecrets(
            f"HILLCLIMB_NODE_SECRETS names {name}, which the service's environment does not have:"
            " set it or take its name out"
        )
    if len(value) < SHORTEST:
        raise BadNodeSecrets(
            f"HILLCLIMB_NODE_SECRETS names {name}, whose value has fewer than {SHORTEST}"
            " characters: so short it could not be kept out of logs"
        )
    return value
