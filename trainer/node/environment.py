"""The variables with which a node starts its children, and what of them is secret."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from trainer.handover.launch import NOT_THE_TRAINERS
from trainer.handover.masking import SECRET_NAMES
from trainer.handover.processes import ATTEMPT_VARIABLE, HOME_VARIABLE
from trainer.node.settings import NodeSettings

WITHHELD = NOT_THE_TRAINERS - {"PYTHONPATH", "VIRTUAL_ENV"}
"""From what a node starts. The node is of the data plane: its imports are the trainer's too."""
NOT_OURS = frozenset({"RAY_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"})
"""On some clouds SkyPilot's job runs in a Ray of its own, which is not the trainer's."""


def with_secrets(environ: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of this process and the operator's secrets, named as such."""
    named = [name for name in environ.get(SECRET_NAMES, "").split(",") if name]
    kept = {name: value for name, value in environ.items() if name not in NOT_OURS}
    return kept | dict(secrets) | {SECRET_NAMES: ",".join(sorted({*named, *secrets}))}


def marked(environ: Mapping[str, str], settings: NodeSettings) -> dict[str, str]:
    """Return variables that mark a child as this node's, so that it is found again."""
    kept = {name: value for name, value in environ.items() if name not in WITHHELD}
    mark = {ATTEMPT_VARIABLE: settings.attempt_id, HOME_VARIABLE: str(settings.own_dir)}
    return kept | mark


def of_ray(settings: NodeSettings) -> dict[str, str]:
    """Return what the gang's Ray and everybody who joins it has; nothing where there is none.

    Only who has the token gets in. Every node makes it from the code, which is the gang's own.
    """
    if settings.gang.is_alone:
        return {}
    token = hmac.new(settings.code.encode(), b"ray", hashlib.sha256).hexdigest()
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": token,
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
