"""Payloads of evaluations."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from hillclimb.protocol.payloads.base import Payload


class PassAtN(Payload):
    """pass@k for k above 1, in [0, 1]."""

    k: int
    value: float | None
    """Mean over tasks with at least k graded rollouts, unbiased; null without such a task."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    num_tasks: int | None = None
    """Tasks with at least k graded rollouts; null from a service that did not count them."""
    bound_if_failed: float | None = None
    """The value if every rollout without a grade had failed."""
    bound_if_passed: float | None = None
    """The value if every rollout without a grade had passed."""


class RatePayload(Payload):
    """pass@1 of a group of tasks, with interval, bounds and counts; rates are in [0, 1]."""

    pass_at_1: float | None
    """Mean over tasks; null without a graded rollout."""
    low: float
    """Lower end of the 95 % interval."""
    high: float
    """Upper end of the 95 % interval."""
    n: int
    """Graded rollouts."""
    passes: int
    """Graded rollouts that passed."""
    num_tasks: int
    num_rollouts: int
    coverage: float
    """Share of rollouts with a grade."""
    bound_if_failed: float
    """The rate if every rollout without a grade had failed."""
    bound_if_passed: float
    """The rate if every rollout without a grade had passed."""
    pass_at_n: PassAtN | None
    """Null where each task was sampled once."""


class EarlyStopPayload(Payload):
    """The end of an evaluation before all of its tasks, because of its verdict.

    The other tasks are not needed: they have no outcome and count in no coverage.
    """

    cause: Literal["decided", "futile"]
    """`decided`: the verdict stands. `futile`: the remaining tasks would hardly have decided it."""
    verdict: str
    """The word over all tasks at that moment."""
    decided_at: int
    """Tasks that have outcomes, the first of a random order."""
    planned: int
    """Tasks of the complete evaluation."""
    baseline_step: int
    """Step of the evaluation that it was compared with."""
    num_discarded: int
    """Rollouts of later tasks that had begun; they have no outcome either."""

    @property
    def sentence(self) -> str:
        """The end in words, such as "stopped early: IMPROVED after 60 of 300 tasks ..."."""
        futile = "" if self.cause == "decided" else ", hardly to be decided by the others"
        return (
            f"stopped early: {self.verdict.upper()} after {self.decided_at} of {self.planned} tasks"
            f" (against step {self.baseline_step}){futile}"
        )


class EvalPayload(Payload):
    """One evaluation: a step under one decoding."""

    step: int
    attempt: int
    decoding: str
    temperature: float
    n_samples_per_prompt: int
    pass_threshold: float
    duration_s: float
    created_at: datetime
    stopped_early: EarlyStopPayload | None
    """How it ended before all of its tasks; null for a complete evaluation."""
    all: RatePayload
    envs: dict[str, RatePayload]
    difficulties: dict[str, RatePayload]
    """By difficulty, `1` to `3`; `unknown` for tasks without one."""
    modalities: dict[str, RatePayload]
    """By modality; `unknown` for tasks without one."""
    seen_templates: RatePayload
    held_out_templates: RatePayload


class EvalList(Payload):
    """The evaluations of a run, by step and decoding."""

    object: Literal["list"] = "list"
    data: list[EvalPayload]
    threshold: float | None
    """Score from which a rollout passes, by the request; null: each evaluation's own."""
    verifier: str | None
    """Version of the verifier of the rescoring that was asked for; null: the grades as stored."""
    has_more: bool


class RescoringPayload(Payload):
    """Stored rollouts of a run that a version of the verifier has graded again."""

    object: Literal["rescoring"] = "rescoring"
    run_id: str
    verifier: str
    """Version: a digest of the sources from which start states, answers and grades follow."""
    rescored_at: datetime
    num_rollouts: int
    num_graded: int
    num_changed: int
    """Graded ones whose stored score is another, or missing."""
    ungraded: dict[str, int]
    """Those without a grade by reason; `not_replayable: other_answer` is one of which the app
    answers a call otherwise today."""


class RescoringList(Payload):
    """The rescorings of a run, newest first."""

    object: Literal["list"] = "list"
    data: list[RescoringPayload]
    has_more: bool
