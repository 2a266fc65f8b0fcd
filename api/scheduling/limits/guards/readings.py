"""Figures that guards read: of the newest attempt per step, up to the last completed step.

Each is read at most once per evaluation, and only if a guard asks for it. Steps after the last one
belong to an attempt that a rewind undid.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median
from typing import Any

from pydantic import ValidationError
from sqlalchemy import func, select, text, tuple_
from sqlalchemy.orm import Session

from api.results.evals.store import count_outcomes, list_evals
from api.results.signal import TRAIN
from api.tables import Eval, OutcomeRecord, Run
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.spec.monitoring.guards import GuardsSpec
from hillclimb.stats.pass_rate import TaskCount

REWARD = "reward/avg_raw_reward"
ADVANTAGES = "loss/avg_raw_advantages_abs"
DRIFT = "policy/rollout_train_logprobs_abs_diff_mean"
STEP_S, ENGINES_S = "timing/step", "timing/engine_busy"
LEARNER_S = ("timing/policy_train", "timing/fwd_logprobs_values_reward")
MOST_STEPS = 1000
"""Steps whose rewards are read: earlier windows are not compared with."""
MOST_RATE_STEPS = 50
"""Steps of the window of an outcome rate."""
MOST_EVALS = 10
"""Evaluations, besides the first one, from which the last one is projected."""
RECENT_STEPS = 20
"""Steps whose median is the usual duration of a step."""
MIN_STEPS = 3
"""Steps of an attempt before a duration is usual."""

METRICS = (REWARD, ADVANTAGES, DRIFT, STEP_S, ENGINES_S, *LEARNER_S)
_STEPS = text("""
SELECT step, attempt, sum(num_rollouts), sum(num_graded), sum(num_mixed)
FROM (SELECT *, max(attempt) OVER (PARTITION BY step) AS newest FROM step_signals
      WHERE run_id = :run_id AND step > :first AND step <= :last) signals
WHERE attempt = newest GROUP BY step, attempt ORDER BY step
""")
_METRICS = text(
    " UNION ALL ".join(
        "SELECT name, step, value, attempt FROM metrics WHERE run_id = :run_id"
        f" AND name = :name_{number} AND decoding = '{TRAIN}'"
        f" AND step BETWEEN :first_{number} AND :last"
        for number in range(len(METRICS))
    )
    + " ORDER BY name, step, attempt"
)
"""A range of the primary key per name: with a disjunction, or a join with the names, PostgreSQL
reads every metric of the run. Texts that are made once: every batch of events executes both, and to
build them of expressions takes longer than PostgreSQL does."""

Evaluation = tuple[Eval, Sequence[TaskCount]]


def guards_of(run: Run) -> GuardsSpec | None:
    """Return the guards of a run; None if it trains nothing, or another version stored it.

    A run whose guards this version does not know goes on without: its events must be stored.
    """
    section: dict[str, Any] | None = run.spec.get("guards")
    if section is None or run.spec["kind"] != "train":
        return None
    try:
        return GuardsSpec.model_validate(section)
    except ValidationError:
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCounts:
    """Rollouts and groups of one training step, over its environments."""

    step: int
    attempt: int
    num_rollouts: int
    num_graded: int
    num_mixed: int


@dataclass(frozen=True)
class Readings:
    """The figures of one run for one evaluation of its guards."""

    session: Session
    run: Run
    guards: GuardsSpec
    _ungraded: dict[tuple[tuple[int, int], ...], Mapping[str, int]] = field(
        default_factory=dict, init=False
    )

    @property
    def step(self) -> int:
        """The last completed step."""
        return self.run.progress_step

    @property
    def last_step(self) -> int:
        """The last step of the schedule."""
        return self.run.progress_total

    @property
    def num_engines(self) -> int:
        """Engines whose busy seconds are added up."""
        return int(self.run.spec["engine"]["data_parallel_size"])

    @cached_property
    def steps(self) -> Sequence[StepCounts]:
        """The newest steps with outcomes, oldest first."""
        first = self.step - max(self.guards.no_signal.steps, MOST_RATE_STEPS)
        facts = {"run_id": self.run.id, "first": first, "last": self.step}
        rows = self.session.connection().execute(_STEPS, facts)
        return [
            StepCounts(
                step=step,
                attempt=attempt,
                num_rollouts=num_rollouts,
                num_graded=num_graded,
                num_mixed=num_mixed,
            )
            for step, attempt, num_rollouts, num_graded, num_mixed in rows
        ]

    @cached_property
    def _metrics(self) -> Mapping[str, Mapping[int, tuple[float, int]]]:
        """Value and attempt by name and step; one statement for all guards."""
        sizes = self._metric_windows()
        firsts = {f"first_{n}": self.step - sizes[name] + 1 for n, name in enumerate(METRICS)}
        names = {f"name_{n}": name for n, name in enumerate(METRICS)}
        facts = {"run_id": self.run.id, "last": self.step, **names, **firsts}
        rows = self.session.connection().execute(_METRICS, facts)
        newest: dict[str, dict[int, tuple[float, int]]] = {name: {} for name in METRICS}
        for name, step, value, attempt in rows:
            newest[name][step] = value, attempt  # a later attempt replaces an earlier one
        return newest

    def _metric_windows(self) -> dict[str, int]:
        guards = self.guards
        idle = guards.idle_gpus.window_steps
        return {
            ADVANTAGES: guards.no_signal.steps,
            DRIFT: guards.logprob_drift.window_steps,
            REWARD: MOST_STEPS,
            **dict.fromkeys((ENGINES_S, *LEARNER_S), idle),
            STEP_S: max(idle, RECENT_STEPS),
        }

    def metric(self, name: str) -> Mapping[int, float]:
        """Return the values of a metric by step, of its guard's window, oldest first."""
        return {step: value for step, (value, _) in self._metrics[name].items()}

    def count_ungraded(self, steps: Sequence[StepCounts]) -> Mapping[str, int]:
        """Return the training rollouts of these steps by status, those without a grade."""
        if all(each.num_graded == each.num_rollouts for each in steps):
            return {}
        key = tuple((each.step, each.attempt) for each in steps)
        if key not in self._ungraded:  # two guards with the same window
            self._ungraded[key] = self._count_ungraded(key)
        return self._ungraded[key]

    def _count_ungraded(self, steps: Sequence[tuple[int, int]]) -> Mapping[str, int]:
        records = OutcomeRecord
        query = (
            select(records.status, func.count().label("number"))
            .where(records.run_id == self.run.id)
            .where(records.split == TRAIN, records.decoding == TRAIN)
            .where(tuple_(records.step, records.attempt).in_(steps))
            .where(records.status != OutcomeStatus.GRADED)
            .group_by(records.status)
        )
        return {str(row.status): int(row.number) for row in self.session.execute(query)}

    @cached_property
    def decoding(self) -> str:
        """The decoding of the evaluations that guards read: the first one of the intervals."""
        section = self.run.spec["eval"]
        names = section["interval_decodings"] or [each["name"] for each in section["decodings"]]
        return str(names[0])

    @cached_property
    def _evals(self) -> Sequence[Eval]:
        evals = list_evals(self.session, self.run.id)
        return [e for e in evals if e.decoding == self.decoding and e.step <= self.step]

    @property
    def num_evals(self) -> int:
        """Evaluations under the decoding so far."""
        return len(self._evals)

    @cached_property
    def _counts(self) -> Mapping[tuple[int, str], Sequence[TaskCount]]:
        newest = max(MOST_EVALS, self.guards.eval_flat.evaluations + 1)
        chosen = {each.step: each for each in (*self._evals[:1], *self._evals[-newest:])}
        return count_outcomes(self.session, self.run.id, list(chosen.values()))

    def evaluations(self, newest: int, *, with_first: bool = False) -> list[Evaluation]:
        """Return the newest evaluations by step, and the first one if it is not among them."""
        chosen = list(self._evals[-newest:])
        if with_first and len(self._evals) > newest:
            chosen.insert(0, self._evals[0])
        return [(each, self._counts[each.step, each.decoding]) for each in chosen]

    def usual_step_s(self) -> float | None:
        """Return the median duration of the attempt's newest steps; None before it is known."""
        steps = self._metrics[STEP_S].values()
        durations = [value for value, attempt in steps if attempt == self.run.attempt]
        if len(durations) < MIN_STEPS:
            return None
        return median(durations[-RECENT_STEPS:])

    def longest_eval_s(self) -> float | None:
        """Return the longest duration of an evaluation of the attempt; None before the first."""
        query = select(func.max(Eval.duration_s)).where(
            Eval.run_id == self.run.id, Eval.attempt == self.run.attempt
        )
        return self.session.scalar(query)
