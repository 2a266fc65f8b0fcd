"""The acceptance test of the whole gang, as a child of the first node."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from trainer.handover.ending import log_tail
from trainer.handover.masking import Mask
from trainer.handover.processes import TrainerProcess, start_detached
from trainer.node.environment import marked, of_ray
from trainer.node.fitness import Demands, Inspection
from trainer.node.settings import NodeSettings

FOUND = TypeAdapter(tuple[Inspection, ...])


@dataclass(slots=True, kw_only=True)
class Survey:
    """Looks at this machine where it is alone, at every machine of the Ray cluster where not."""

    settings: NodeSettings
    address: str
    environ: dict[str, str] = field(repr=False)
    process: TrainerProcess | None = None

    def start(self) -> None:
        """Start it. Raises OSError."""
        self._file.unlink(missing_ok=True)
        gang = self.settings.gang
        demands = Demands(
            num_gpus=gang.num_gpus,
            disk_gb=self.settings.min_disk_gb,
            memory_gb=self.settings.min_memory_gb,
            folder=self.settings.home,
        )
        whose = (
            ("trainer.node.fitness", "--ip", gang.own_ip)
            if gang.is_alone
            else (
                *("trainer.placement.survey", "--address", self.address),
                *("--nodes", str(len(gang.ips)), "--wait", str(self.settings.gather_s)),
            )
        )
        self.process = start_detached(
            (
                *(sys.executable, "-m", *whose),
                *("--demands", demands.model_dump_json(), "--out", str(self._file)),
            ),
            cwd=self.settings.own_dir,
            environment=marked(self.environ, self.settings) | of_ray(self.settings),
            log=self._log,
        )

    def is_over(self) -> bool:
        """Whether it has ended."""
        return self.process is not None and not self.process.running()

    def kill(self) -> None:
        """End it at once."""
        if self.process is not None:
            self.process.kill()

    def found(self) -> tuple[Inspection, ...] | str:
        """Return what it found, or a sentence why it found nothing."""
        try:
            return FOUND.validate_json(self._file.read_bytes())
        except (OSError, ValidationError):
            said = log_tail(self._log, Mask.of(self.environ)).splitlines()
            return said[-1] if said else "the acceptance test ended without a word"

    @property
    def _file(self) -> Path:
        return self.settings.own_dir / "survey.json"

    @property
    def _log(self) -> Path:
        return self.settings.own_dir / "survey.log"
