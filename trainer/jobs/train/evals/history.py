"""Earlier evaluations of a run, its earlier attempts included, as counts per task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.events import EVENTS, EvalCompleted
from hillclimb.protocol.rundir import event_segment, run_key
from hillclimb.stats.pass_rate import TaskCount, count_tasks

_MARK = b'"type":"eval.completed"'


@dataclass(frozen=True, slots=True, kw_only=True)
class PastEval:
    """One evaluation under one decoding."""

    step: int
    decoding: str
    counts: tuple[TaskCount, ...]

    @classmethod
    def of(cls, event: EvalCompleted) -> PastEval:
        """Return the evaluation that an event reports."""
        return cls(
            step=event.step,
            decoding=event.decoding,
            counts=count_tasks(event.outcomes, pass_threshold=event.pass_threshold),
        )


class EvalHistory:
    """The evaluations of a run so far, by step."""

    def __init__(self, evals: Sequence[PastEval] = ()) -> None:
        """`evals` are those of earlier attempts; of two at one step the last counts."""
        self._evals = {(each.decoding, each.step): each for each in evals}

    def add(self, event: EvalCompleted) -> None:
        """Add an evaluation of this attempt."""
        self._evals[event.decoding, event.step] = PastEval.of(event)

    def of(self, decoding: str) -> tuple[PastEval, ...]:
        """Return the evaluations under a decoding, by step."""
        own = [each for each in self._evals.values() if each.decoding == decoding]
        return tuple(sorted(own, key=lambda each: each.step))


def stored_evals(
    store: BlobStore, run_id: str, *, attempts: int, last_step: int
) -> Iterator[PastEval]:
    """Yield the evaluations that the first `attempts` attempts of a run stored, oldest first.

    Those after `last_step` are left out: the run has gone back to that step.

    Raises:
        StoreError: the store does not answer.
    """
    for attempt in range(1, attempts + 1):
        folder = event_segment(attempt, 1).rpartition("/")[0]
        for key in store.list(run_key(run_id, folder)):
            for line in store.get(key).splitlines():
                if _MARK not in line:
                    continue
                event = EVENTS.validate_json(line)
                if isinstance(event, EvalCompleted) and event.step <= last_step:
                    yield PastEval.of(event)
