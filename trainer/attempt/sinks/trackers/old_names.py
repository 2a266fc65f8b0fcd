"""Gives a tracker metrics under their old names too, so that dashboards of SkyRL and Fleet work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime

from hillclimb.spec.monitoring.old_metrics import EVAL, old_names
from hillclimb.spec.training.evaluation import EvalSpec
from trainer.attempt.sinks.tracking import TrackedRun, Tracker


class WithOldNames:
    """A tracker whose metrics have their old names beside today's.

    An old evaluation had one decoding and named none: `eval/` is `decoding`'s.
    """

    def __init__(self, tracker: Tracker, *, decoding: str) -> None:
        self._tracker = tracker
        self._prefix = f"eval_{decoding}/"

    @property
    def run(self) -> TrackedRun:
        """The tracker's run."""
        return self._tracker.run

    def describe(self, facts: Mapping[str, object]) -> None:
        """Pass on the facts."""
        self._tracker.describe(facts)

    def log(self, metrics: Mapping[str, float], *, step: int, at: datetime) -> None:
        """Pass on the values under both names; a name of today is never taken by an old one."""
        old = {name: value for ours, value in metrics.items() for name in self._old(ours)}
        self._tracker.log({**old, **metrics}, step=step, at=at)

    def finish(self, summary: Mapping[str, object], *, succeeded: bool) -> None:
        """Pass on the end."""
        self._tracker.finish(summary, succeeded=succeeded)

    def _old(self, ours: str) -> Iterator[str]:
        if ours.startswith(self._prefix):
            ours = EVAL + ours.removeprefix(self._prefix)
            yield ours
        yield from old_names(ours)


def main_decoding(spec: EvalSpec) -> str:
    """Return the decoding that stands for an old evaluation.

    Of those of the evaluations during training, the one with the most samples per task, which
    alone has `pass_at_3` where 3 are drawn; of several the first.
    """
    used = spec.interval_decodings or [each.name for each in spec.decodings]
    among = [each for each in spec.decodings if each.name in used]
    return max(among, key=lambda each: each.n_samples_per_prompt).name
