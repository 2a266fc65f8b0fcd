"""A run with guards whose trainer reports steps and evaluations as a test writes them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from api.runs import store
from api.scheduling.limits.guards.report import build_guards
from api.tables import Run, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import EvalCompleted, Event, StepCompleted
from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus
from hillclimb.protocol.payloads.events import GuardPayload
from hillclimb.spec.monitoring.guards import GUARDS
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.story import PROJECT, Story, rollout

GROUP = 4
MIXED = (1.0, 0.0, 0.0, 0.0)
OFF = {name: {"policy": None} for name in GUARDS}


def guarded_spec(
    guards: Mapping[str, Mapping[str, Any]], *, steps: int = 40, **sections: Any
) -> RunSpec:
    """A spec with these guards and no others."""
    body = {
        "name": "climb",
        "data": {"env_keys": ["booking"]},
        "rollout": {"n_samples_per_prompt": GROUP},
        "schedule": {"total_steps": steps},
        "guards": {**OFF, **guards},
    }
    return RunSpec.model_validate(body | sections)


@dataclass(slots=True)
class Guarded:
    """One run, and what its guards did."""

    story: Story
    run_id: str

    @classmethod
    def begin(
        cls, story: Story, guards: Mapping[str, Mapping[str, Any]], **changes: Any
    ) -> Guarded:
        return cls(story, story.running(guarded_spec(guards, **changes)))

    def step(
        self,
        step: int,
        *groups: Sequence[float | None],
        metrics: Mapping[str, float] | None = None,
        ungraded: int = 0,
    ) -> StepCompleted:
        """A step of these groups of scores; None is an infra error. `ungraded` rollouts more have
        no grade."""
        attempt = self.story.plans[self.run_id].attempt
        rows = [
            _row(step, attempt, task, sample, score)
            for task, group in enumerate(groups or (MIXED,))
            for sample, score in enumerate(group)
        ]
        rows += [
            _row(step, attempt, 1000 + number, 0, None).model_copy(
                update={"status": OutcomeStatus.UNGRADED, "reason": "verifier_unavailable"}
            )
            for number in range(ungraded)
        ]
        return StepCompleted(
            **self.story.place(self.run_id, step), metrics=dict(metrics or {}), outcomes=rows
        )

    def evaluation(self, step: int, passed: Sequence[bool | None]) -> EvalCompleted:
        """An evaluation in which these tasks passed; None is an infra error."""
        attempt = self.story.plans[self.run_id].attempt
        rows = [
            rollout("booking", task, passed=each, step=step, attempt=attempt)
            for task, each in enumerate(passed)
        ]
        return EvalCompleted(
            **self.story.place(self.run_id, step),
            decoding="sampled",
            temperature=1.0,
            n_samples_per_prompt=1,
            pass_threshold=1.0,
            metrics={},
            outcomes=rows,
            duration_s=3.0,
        )

    def push(self, *events: Event) -> None:
        self.story.push(self.run_id, *events)

    def steps(self, numbers: Sequence[int], *groups: Sequence[float | None], **more: Any) -> None:
        """Push these steps, each in a batch of its own."""
        for number in numbers:
            self.push(self.step(number, *groups, **more))

    def events(self, kind: str = "guard.") -> list[RunEvent]:
        query = select(RunEvent).where(RunEvent.run_id == self.run_id).order_by(RunEvent.seq)
        with self.story.database.transaction() as session:
            return [each for each in session.scalars(query) if each.type.startswith(kind)]

    @property
    def told(self) -> list[tuple[str, str, int]]:
        """What the guards reported: event, guard, step."""
        return [
            (each.type.removeprefix("guard."), each.data["guard"], each.data["step"])
            for each in self.events()
        ]

    @property
    def run(self) -> Run:
        with self.story.database.transaction() as session:
            return store.get_run(session, PROJECT, self.run_id)

    def state(self, guard: str) -> GuardPayload:
        with self.story.database.transaction() as session:
            run = store.get_run(session, PROJECT, self.run_id)
            report = build_guards(session, run, now=self.story.now)
        return next(each for each in report.guards if each.guard == guard)

    def crash(self) -> None:
        """The trainer crashes; another attempt of the run starts."""
        self.story.report(self.run_id, ReasonCode.TRAINER_CRASHED)
        self.story.launch(self.run_id)


def _row(step: int, attempt: int, task: int, sample: int, score: float | None) -> OutcomeRow:
    row = rollout(
        "booking",
        task,
        passed=None if score is None else score > 0.0,
        decoding="train",
        split="train",
        step=step,
        sample=sample,
        attempt=attempt,
    )
    return row if score is None else row.model_copy(update={"score": score})
