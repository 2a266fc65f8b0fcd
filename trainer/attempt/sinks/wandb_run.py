"""Weights & Biases: one run per attempt; the only file that names `wandb`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hillclimb.protocol.rundir import AttemptDir, attempt_name
from hillclimb.spec.run import RunSpec
from trainer.attempt.sinks.tracking import Tracker, Tracking
from trainer.errors import SpecError

if TYPE_CHECKING:
    import wandb

API_KEY = "WANDB_API_KEY"
INIT_TIMEOUT_S, FINISH_TIMEOUT_S = 30.0, 8.0
"""Time-outs of W&B; the second is shorter than the trainer's own wait for its sinks."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WandbPlan:
    """Id, group and config of an attempt's W&B run."""

    spec: RunSpec
    attempt_dir: AttemptDir
    resume_from: str | None
    """Blob key of the checkpoint that the attempt resumes from."""

    @property
    def run_id(self) -> str:
        """The id of the attempt's W&B run, which stays the same when the attempt restarts."""
        return _wandb_id(self.attempt_dir.run_dir.name, self.attempt_dir.attempt)

    @property
    def group(self) -> str:
        """Group of the W&B runs of all attempts of a run."""
        return self.spec.tracking.wandb.group or self.attempt_dir.run_dir.name

    def config(self) -> dict[str, object]:
        """Return the resolved spec, and the attempt's place among the run's attempts."""
        run_id, attempt = self.attempt_dir.run_dir.name, self.attempt_dir.attempt
        lineage = {
            "run_id": run_id,
            "attempt": attempt,
            "previous_attempt": _wandb_id(run_id, attempt - 1) if attempt > 1 else None,
            "resume_from": self.resume_from,
        }
        return {"hillclimb": lineage, "spec": self.spec.model_dump(mode="json")}


def tracking_sink(plan: WandbPlan, environ: Mapping[str, str]) -> Tracking | None:
    """Return the spec's tracking sink; None if tracking is disabled.

    Raises:
        SpecError: the mode is online and the environment has no key.
    """
    mode = plan.spec.tracking.wandb.mode
    if mode == "disabled":
        return None
    if mode == "online" and not environ.get(API_KEY):
        raise SpecError(
            f"tracking.wandb.mode is online and {API_KEY} is not set where the trainer runs: set"
            " it in the environment of the runner, or the mode to offline"
        )
    return Tracking(plan.attempt_dir.events, lambda: open_wandb(plan))


def open_wandb(plan: WandbPlan) -> Tracker:
    """Start the attempt's W&B run, offline if the server cannot be reached or refuses.

    Raises:
        Exception: any error of `wandb` if not even its files can be written.
    """
    if plan.spec.tracking.wandb.mode == "online":
        try:
            return _WandbTracker(_start(plan, "online"))
        except Exception as error:  # noqa: BLE001 - the sink edge: figures are kept in files instead
            _log.warning("W&B is offline; metrics are stored for `wandb sync`: %s", error)
            _end_helper()
    return _WandbTracker(_start(plan, "offline"))


def _start(plan: WandbPlan, mode: Literal["online", "offline"]) -> wandb.Run:
    # By default W&B sends error reports about itself, even for offline runs.
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
    # The import takes seconds, which only tracked attempts should pay.
    import wandb  # noqa: PLC0415

    # Its logger repeats the whole config, and failures that this module logs itself.
    logging.getLogger("wandb").setLevel(logging.CRITICAL)
    wandb_spec = plan.spec.tracking.wandb
    return wandb.init(
        project=wandb_spec.project,
        entity=wandb_spec.entity,
        id=plan.run_id,
        name=f"{plan.spec.name} {attempt_name(plan.attempt_dir.attempt)}",
        group=plan.group,
        tags=wandb_spec.tags,
        config=plan.config(),
        dir=plan.attempt_dir.path,
        mode=mode,
        resume="allow" if mode == "online" else None,
        reinit="create_new",
        settings=wandb.Settings(
            console="off",
            silent=True,
            disable_code=True,
            disable_git=True,
            x_disable_machine_info=True,
            x_disable_meta=True,
            x_disable_stats=True,
            init_timeout=INIT_TIMEOUT_S,
            finish_timeout=FINISH_TIMEOUT_S if mode == "online" else 0.0,
            finish_timeout_raises=True,
        ),
    )


def _end_helper() -> None:
    """End W&B's process, which until then locks the run's id and may buffer the end of its file."""
    import wandb  # noqa: PLC0415 (as above)

    wandb.teardown()


class _WandbTracker:
    def __init__(self, run: wandb.Run) -> None:
        self._run = run

    def describe(self, facts: Mapping[str, object]) -> None:
        """Add to the run's config."""
        self._run.config.update(dict(facts), allow_val_change=True)  # type: ignore[no-untyped-call]

    def log(self, metrics: Mapping[str, float], *, step: int) -> None:
        """Add values to the row of `step`, which W&B closes when the next step's values arrive."""
        self._run.log({**metrics, "trainer/global_step": step}, step=step)

    def finish(self, summary: Mapping[str, object], *, succeeded: bool) -> None:
        """End the run. Raises TimeoutError if the remaining values were not uploaded in time."""
        self._run.summary.update(dict(summary))
        try:
            self._run.finish(exit_code=0 if succeeded else 1)
        finally:
            _end_helper()


def _wandb_id(run_id: str, attempt: int) -> str:
    return f"{run_id}-{attempt_name(attempt)}"
