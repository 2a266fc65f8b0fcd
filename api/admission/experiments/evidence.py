"""The rows behind an experiment: the evaluations and series of its arms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from sqlalchemy.orm import Session

from api.admission.experiments.store import BASELINE, PlacedRun
from api.results.evals.report import num_candidates
from api.results.evals.store import count_outcomes, list_evals
from api.runs.status import TERMINAL, RunStatus
from api.tables import Eval, Run
from hillclimb.stats.pass_rate import TaskCount

Counts = Sequence[TaskCount]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluatedRun:
    """A run with its evaluations by step and decoding."""

    run: Run
    evals: Mapping[tuple[int, str], Eval]

    def steps(self, decoding: str) -> set[int]:
        """Return the steps that it evaluated under a decoding."""
        return {step for step, name in self.evals if name == decoding}


@dataclass(slots=True, kw_only=True)
class OutcomeReader:
    """Reads the outcomes of evaluations, each once."""

    session: Session
    _counts: dict[tuple[str, int, str], Counts] = field(default_factory=dict)

    def counts(self, evaluated: EvaluatedRun, step: int, decoding: str) -> Counts:
        """Return the counts of an evaluation's tasks."""
        run_id = evaluated.run.id
        key = (run_id, step, decoding)
        if key not in self._counts:
            chosen = evaluated.evals[step, decoding]
            read = count_outcomes(self.session, run_id, [chosen])
            self._counts[key] = read[step, decoding]
        return self._counts[key]

    def read_all(self, evaluated: EvaluatedRun, decoding: str) -> None:
        """Read every evaluation of a run under a decoding in one statement."""
        chosen = [each for (_, name), each in evaluated.evals.items() if name == decoding]
        read = count_outcomes(self.session, evaluated.run.id, chosen)
        for each in chosen:
            key = (evaluated.run.id, each.step, decoding)
            self._counts[key] = read[each.step, decoding]


@dataclass(frozen=True, kw_only=True)
class ArmEvidence:
    """The runs of one configuration."""

    arm: str
    role: str
    members: Sequence[PlacedRun]
    evaluated: Sequence[EvaluatedRun]
    """Those of them with an evaluation."""
    source: OutcomeReader

    @property
    def num_live(self) -> int:
        """Runs that have not ended, refused ones included: the arm is not complete."""
        return sum(
            each.run is None or RunStatus(each.run.status) not in TERMINAL for each in self.members
        )

    @property
    def runs(self) -> list[Run]:
        """The members' runs."""
        return [each.run for each in self.members if each.run is not None]

    @cached_property
    def decodings(self) -> Mapping[str, float]:
        """The temperatures by decoding, the highest first."""
        read = {
            name: each.temperature
            for member in self.evaluated
            for (_, name), each in member.evals.items()
        }
        return dict(sorted(read.items(), key=lambda item: (-item[1], item[0])))

    def steps(self, decoding: str) -> list[int]:
        """Return the steps that every run with evaluations of the decoding has evaluated."""
        sets = [steps for each in self.evaluated if (steps := each.steps(decoding))]
        return sorted(set.intersection(*sets)) if sets else []

    def counts(self, step: int, decoding: str) -> list[Counts]:
        """Return the counts of each run at a step."""
        return [
            self.source.counts(each, step, decoding)
            for each in self.evaluated
            if (step, decoding) in each.evals
        ]

    def is_complete(self, step: int, decoding: str) -> bool:
        """Tell whether no evaluation of the step ended early."""
        evals = [each.evals.get((step, decoding)) for each in self.evaluated]
        return all(each is None or each.stopped_early is None for each in evals)

    def num_candidates(self, step: int, first: int) -> int:
        """Return from how many evaluations the one at `step` may have been chosen."""
        return max(
            (
                num_candidates(self.source.session, each.run, last=step, first=first)
                for each in self.evaluated
            ),
            default=1,
        )


def read_arms(session: Session, placed: Sequence[PlacedRun]) -> list[ArmEvidence]:
    """Return the arms of an experiment: the baseline first, then in the order of addition."""
    source = OutcomeReader(session=session)
    arms: dict[str, list[PlacedRun]] = {}
    for each in placed:
        arms.setdefault(each.place.arm, []).append(each)
    all_arms = [
        ArmEvidence(
            arm=arm,
            role=members[0].place.role,
            members=members,
            evaluated=[
                EvaluatedRun(run=each.run, evals={(e.step, e.decoding): e for e in evals})
                for each in members
                if each.run is not None and (evals := list_evals(session, each.run.id))
            ],
            source=source,
        )
        for arm, members in arms.items()
    ]
    return sorted(all_arms, key=lambda each: each.role != BASELINE)


def baseline_of(arms: Sequence[ArmEvidence]) -> ArmEvidence | None:
    """Return the baseline arm, if there is one."""
    return next((each for each in arms if each.role == BASELINE), None)


def variants_of(arms: Sequence[ArmEvidence]) -> Sequence[ArmEvidence]:
    """Return the arms that the hypothesis is about: all but the baseline, or the only one."""
    return [each for each in arms if each.role != BASELINE] or arms


def default_decoding(arms: Sequence[ArmEvidence]) -> str | None:
    """Return the decoding with the highest temperature that most arms have."""
    votes: dict[str, int] = {}
    for each in arms:
        for name in each.decodings:
            votes[name] = votes.get(name, 0) + 1
    temperatures = {name: t for each in arms for name, t in each.decodings.items()}
    order = sorted(votes, key=lambda name: (-votes[name], -temperatures[name], name))
    return order[0] if order else None
