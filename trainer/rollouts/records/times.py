"""Files of rollouts' times: what each did from when to when, one JSON object per line, gzip.

Apart from the trajectories, because the timeline of a step reads all of them and no token.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from hillclimb.protocol.payloads.results.rollouts import StoredSpan, StoredTimes
from trainer.rollouts.operation import RolloutSpan
from trainer.rollouts.request import Rollout

_DIGITS = 6
"""Of seconds: microseconds, the unit of a trace."""


def write_times(path: Path, rollouts: Sequence[Rollout]) -> None:
    """Write one line per rollout that was started, in the order of `rollouts`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = (
        f"{_times(each).model_dump_json()}\n" for each in rollouts if each.began_at is not None
    )
    path.write_bytes(gzip.compress("".join(lines).encode(), mtime=0))


def _times(rollout: Rollout) -> StoredTimes:
    return StoredTimes(
        rollout_id=rollout.trajectory.rollout_id,
        worker=rollout.worker,
        engine=rollout.engine,
        began_at=round(rollout.began_at or 0.0, _DIGITS),
        spans=[_span(span) for span in rollout.spans],
    )


def _span(span: RolloutSpan) -> StoredSpan:
    facts = asdict(span)
    rounded = {name: round(facts[name], _DIGITS) for name in ("began_s", "seconds")}
    return StoredSpan(**facts | rounded)
