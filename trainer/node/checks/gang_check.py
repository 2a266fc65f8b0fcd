"""The node check of the whole gang, as a child process of the first node."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from hillclimb.process.exit_report import log_tail
from hillclimb.process.identity import TrainerProcess, start_detached
from hillclimb.process.redactor import Redactor
from trainer.node.checks.node_check import NodeReport, NodeRequirements
from trainer.node.environment import ray_variables, with_mark
from trainer.node.settings import NodeSettings

REPORTS = TypeAdapter(tuple[NodeReport, ...])


@dataclass(slots=True, kw_only=True)
class GangCheck:
    """Checks this machine if it is alone, or every machine of the Ray cluster."""

    settings: NodeSettings
    address: str
    environ: dict[str, str] = field(repr=False)
    process: TrainerProcess | None = None

    def start(self) -> None:
        """Start the check. Raises OSError."""
        self._file.unlink(missing_ok=True)
        gang = self.settings.gang
        requirements = NodeRequirements(
            num_gpus=gang.num_gpus,
            disk_gb=self.settings.min_disk_gb,
            memory_gb=self.settings.min_memory_gb,
            folder=self.settings.home,
        )
        module = (
            ("trainer.node.checks.node_check", "--ip", gang.own_ip)
            if gang.is_alone
            else (
                *("trainer.workers.ray.check_nodes", "--address", self.address),
                *("--nodes", str(len(gang.ips)), "--wait", str(self.settings.gather_s)),
            )
        )
        self.process = start_detached(
            (
                *(sys.executable, "-m", *module),
                *("--requirements", requirements.model_dump_json(), "--out", str(self._file)),
            ),
            cwd=self.settings.own_dir,
            environment=with_mark(self.environ, self.settings) | ray_variables(self.settings),
            log=self._log,
        )

    def is_finished(self) -> bool:
        """True once the check has exited."""
        return self.process is not None and not self.process.running()

    def kill(self) -> None:
        """Kill the check."""
        if self.process is not None:
            self.process.kill()

    def result(self) -> tuple[NodeReport, ...] | str:
        """Return the machines' reports, or a sentence why there are none."""
        try:
            return REPORTS.validate_json(self._file.read_bytes())
        except (OSError, ValidationError):
            lines = log_tail(self._log, Redactor.of(self.environ)).splitlines()
            return lines[-1] if lines else "the node check exited without output"

    @property
    def _file(self) -> Path:
        return self.settings.own_dir / "checks.json"

    @property
    def _log(self) -> Path:
        return self.settings.own_dir / "checks.log"
