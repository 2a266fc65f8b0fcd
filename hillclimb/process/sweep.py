"""Deleting what a trainer that is gone left on platforms, through the data plane's Python."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from trainer.contract.rundir import AttemptDir
from trainer.handover.launch import NOT_THE_TRAINERS
from trainer.handover.place import Place

SWEEP_S = 45.0
"""Longer than the sweep tries."""
HOLDING = ("fleet",)
"""Providers whose episodes hold something elsewhere."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Sweeps for one holder."""

    place: Place
    environment: Mapping[str, str] = field(repr=False)
    withheld: frozenset[str] = NOT_THE_TRAINERS

    def sweep(self, where: AttemptDir) -> None:
        """Delete what an attempt left. What fails is logged: silent instances end by themselves."""
        if not _holds_something(where):
            return
        command = (
            *(self.place.trainer_python, "-m", "trainer.sweep"),
            *("--run-dir", str(where.run_dir), "--attempt", str(where.attempt)),
        )
        kept = {k: v for k, v in self.environment.items() if k not in self.withheld}
        try:
            done = subprocess.run(
                command,
                cwd=where.path,
                env=kept,
                capture_output=True,
                text=True,
                check=False,
                timeout=SWEEP_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("attempt %s was not swept: %s", where.path, error)
            return
        if done.returncode:
            log.warning("attempt %s was not swept: %s", where.path, done.stderr.strip()[-500:])
        else:
            log.info("swept attempt %s: %s", where.path, done.stdout.strip())


def _holds_something(where: AttemptDir) -> bool:
    """Ask no more of the spec than that: an update may refuse what an attempt began with."""
    try:
        provider = json.loads(where.spec.read_bytes())["environment"]["provider"]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return provider in HOLDING
