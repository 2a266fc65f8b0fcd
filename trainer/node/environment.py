"""Environment variables of a node's children, and which of them are secret."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

from hillclimb.process import redactor
from hillclimb.process.identity import ATTEMPT_VARIABLE, HOME_VARIABLE
from hillclimb.process.launcher import RAY_VARIABLES, WITHHELD_VARIABLES
from hillclimb.process.redactor import SECRET_NAMES
from trainer.node.settings import NodeSettings

WITHHELD = WITHHELD_VARIABLES - {"PYTHONPATH", "VIRTUAL_ENV"}
"""Variables withheld from a node's children. The import paths are not: node and trainer share one
environment."""


def with_secrets(environ: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return this process's variables and the attempt's secrets, listed in `SECRET_NAMES`.

    Those of SkyPilot's own Ray, in which its job runs on some clouds, are not the trainer's.
    """
    inherited = {name: value for name, value in environ.items() if name not in RAY_VARIABLES}
    return redactor.with_secrets({SECRET_NAMES: ""} | inherited, secrets)


def with_mark(environ: Mapping[str, str], settings: NodeSettings) -> dict[str, str]:
    """Return variables with the mark by which this node's children are found."""
    inherited = {name: value for name, value in environ.items() if name not in WITHHELD}
    mark = {ATTEMPT_VARIABLE: settings.attempt_id, HOME_VARIABLE: str(settings.own_dir)}
    return inherited | mark


def ray_variables(settings: NodeSettings) -> dict[str, str]:
    """Return the variables of the gang's Ray and its clients; empty for a single machine.

    Joining needs the token, which every node derives from the gang's bootstrap token.
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
