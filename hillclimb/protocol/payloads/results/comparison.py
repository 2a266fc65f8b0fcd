"""Payloads of the comparison of two evaluations, of two runs or of one."""

from __future__ import annotations

from typing import Literal

from pydantic import JsonValue

from hillclimb.protocol.payloads.base import Payload
from hillclimb.protocol.payloads.results.compute import Amount, ComputeAmounts
from hillclimb.protocol.payloads.results.evals import EarlyStopPayload
from hillclimb.protocol.payloads.results.reports import BreakdownRow, ComparisonPayload


class ComparedEval(Payload):
    """One side of a comparison."""

    run_id: str
    name: str
    step: int
    spent: ComputeAmounts | None
    """Compute of its training up to this evaluation, over all attempts; null where its trainer did
    not count it."""


class ConfigDifference(Payload):
    """A key of the resolved specs whose values differ; null where a spec lacks it."""

    pointer: str
    """JSON pointer."""
    a: JsonValue
    b: JsonValue


class FlippedTask(Payload):
    """A task whose pass share differs, with a rollout of each side that shows it."""

    env_key: str
    task_key: str
    change: float
    """Of the pass share, in [-1, 1]."""
    a_rollout: str | None
    """The first rollout of a that failed (gained) or passed (lost)."""
    b_rollout: str | None
    """The first rollout of b that passed (gained) or failed (lost)."""


class BehaviourPayload(Payload):
    """Means over the rollouts of an evaluation that were started; null where there are none."""

    num_rollouts: int
    turns: float | None
    tool_calls: float | None
    tool_errors: float | None
    repeated_calls: float | None
    tokens_of_passes: float | None
    tokens_of_fails: float | None
    duration_s: float | None


class BehaviourPair(Payload):
    """The behaviour of both sides by environment; `all` is over all of them."""

    a: dict[str, BehaviourPayload]
    b: dict[str, BehaviourPayload]


class DecodingDifference(Payload):
    """Evaluation b against evaluation a under one decoding."""

    temperatures: tuple[float, float]
    pass_thresholds: tuple[float, float]
    stopped_early: tuple[EarlyStopPayload | None, EarlyStopPayload | None]
    """How each evaluation ended before all of its tasks; null: it is complete."""
    all: ComparisonPayload
    environments: dict[str, ComparisonPayload]
    difficulties: dict[str, BreakdownRow]
    """By difficulty, `1` to `3`; `unknown` for tasks without one."""
    modalities: dict[str, BreakdownRow]
    """By modality; `unknown` for tasks without one."""
    num_tasks_of_a_alone: int
    """Tasks that only a evaluated; they are in no pair."""
    num_tasks_of_b_alone: int
    behaviour: BehaviourPair
    gained: list[FlippedTask]
    """At most 200 tasks, those that changed most first."""
    lost: list[FlippedTask]


class RunComparison(Payload):
    """The differences of evaluation b from evaluation a."""

    object: Literal["comparison"] = "comparison"
    a: ComparedEval
    b: ComparedEval
    rule: str
    k: int
    at: Amount | None
    """What both sides had spent equally, as near as their evaluations allow; null: the request
    named the evaluations."""
    threshold: float | None
    """Score from which a rollout passes, by the request; null: each evaluation's own."""
    verifier: str | None
    """Version of the verifier of the rescoring that was asked for; null: the grades as stored."""
    num_candidates: int
    """Pairs of evaluations from which this one may have been chosen."""
    config_diff: list[ConfigDifference]
    decodings: dict[str, DecodingDifference]
