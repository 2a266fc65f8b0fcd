"""Weights & Biases: one run per attempt; the only file that names `wandb`."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Literal

from hillclimb.protocol.rundir import attempt_name
from trainer.attempt.sinks.trackers.plan import TrackingPlan
from trainer.attempt.sinks.tracking import TrackedRun, Tracker
from trainer.errors import SpecError

if TYPE_CHECKING:
    import wandb

API_KEY = "WANDB_API_KEY"
INIT_TIMEOUT_S, FINISH_TIMEOUT_S = 30.0, 8.0
"""Time-outs of W&B; the second is shorter than the trainer's own wait for its sinks."""
_log = logging.getLogger(__name__)


def require_key(plan: TrackingPlan, environ: Mapping[str, str]) -> None:
    """Refuse the mode `online` without a key.

    Raises:
        SpecError: the mode is online and the environment has no key.
    """
    if plan.spec.tracking.wandb.mode == "online" and not environ.get(API_KEY):
        raise SpecError(
            f"tracking.wandb.mode is online and {API_KEY} is not set where the trainer runs: set"
            " it in the environment of the runner, or the mode to offline"
        )


def open_wandb(plan: TrackingPlan) -> Tracker:
    """Start the attempt's W&B run, offline if the server cannot be reached or refuses.

    Raises:
        Exception: any error of `wandb` if not even its files can be written.
    """
    if plan.spec.tracking.wandb.mode == "online":
        try:
            return open_online(plan)
        except Exception as error:  # noqa: BLE001 - the sink edge: figures are kept in files instead
            _log.warning("W&B is offline; metrics are stored for `wandb sync`: %s", error)
    return _WandbTracker(_start(plan, "offline"))


def open_online(plan: TrackingPlan) -> Tracker:
    """Start the attempt's W&B run at the server; raises any error of `wandb`."""
    try:
        return _WandbTracker(_start(plan, "online"))
    except Exception:
        _end_helper()
        raise


def _start(plan: TrackingPlan, mode: Literal["online", "offline"]) -> wandb.Run:
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

    @property
    def run(self) -> TrackedRun:
        """The W&B run: its address is known online."""
        url = None if self._run.offline else self._run.url
        return TrackedRun("wandb", str(self._run.id), url)

    def describe(self, facts: Mapping[str, object]) -> None:
        """Add to the run's config."""
        self._run.config.update(dict(facts), allow_val_change=True)  # type: ignore[no-untyped-call]

    def log(self, metrics: Mapping[str, float], *, step: int, at: datetime) -> None:
        """Add values to the row of `step`, which W&B closes when the next step's values arrive.

        W&B takes its own time of a row.
        """
        del at
        self._run.log({**metrics, "trainer/global_step": step}, step=step)

    def finish(self, summary: Mapping[str, object], *, succeeded: bool) -> None:
        """End the run. Raises TimeoutError if the remaining values were not uploaded in time."""
        self._run.summary.update(dict(summary))
        try:
            self._run.finish(exit_code=0 if succeeded else 1)
        finally:
            _end_helper()
