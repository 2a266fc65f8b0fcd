"""Deletes the instances that an exited trainer left on platforms, with the trainer's Python."""

from __future__ import annotations

import json
import logging
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from hillclimb.process.host import TrainerHost
from hillclimb.process.launcher import WITHHELD_VARIABLES
from hillclimb.process.network.addresses import PRIVATE_HOSTS
from hillclimb.protocol.rundir import AttemptDir

SWEEP_S = 45.0
"""Longer than the sweep's own deadline."""
LATE_S = (30.0, 120.0, 600.0)
"""When an ended attempt is swept again (seconds after its end): a platform may carry out a creation
after the first sweep, and its instance then has no other owner."""
PROVIDERS_WITH_INSTANCES = ("fleet",)
"""Providers whose episodes create instances on a platform."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sweeper:
    """Runs sweeps for one runner or node."""

    host: TrainerHost
    environment: Mapping[str, str] = field(repr=False)
    withheld: frozenset[str] = WITHHELD_VARIABLES

    def sweep(self, attempt_dir: AttemptDir) -> bool:
        """Delete an attempt's instances; return False, and log why, where some may be left."""
        if not has_instances(attempt_dir):
            return True
        command = (
            *(self.host.trainer_python, "-m", "trainer.envs.sweep"),
            *("--run-dir", str(attempt_dir.run_dir), "--attempt", str(attempt_dir.attempt)),
        )
        variables = {PRIVATE_HOSTS: ""} | {
            k: v for k, v in self.environment.items() if k not in self.withheld
        }
        try:
            done = subprocess.run(
                command,
                cwd=attempt_dir.path,
                env=variables,
                capture_output=True,
                text=True,
                check=False,
                timeout=SWEEP_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("attempt %s was not swept: %s", attempt_dir.path, error)
            return False
        if done.returncode:
            log.warning(
                "attempt %s was not swept: %s", attempt_dir.path, done.stderr.strip()[-500:]
            )
            return False
        log.info("swept attempt %s: %s", attempt_dir.path, done.stdout.strip())
        return True


def has_instances(attempt_dir: AttemptDir) -> bool:
    """Tell whether an attempt's episodes create instances on a platform.

    The provider alone is read, without validation: an update may no longer accept the spec.
    """
    try:
        provider = json.loads(attempt_dir.spec.read_bytes())["environment"]["provider"]
    except (OSError, ValueError, LookupError, TypeError):
        return False
    return provider in PROVIDERS_WITH_INSTANCES
