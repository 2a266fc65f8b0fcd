"""Files of the learner's values of each token: one JSON object per rollout of a step, gzip.

Beside the trajectories, which are stored before the learner has seen them, and under the same
name: line n is about the rollout of the trajectory file's line n.
"""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from hillclimb.protocol.payloads.results.rollouts import StoredTokenValues
from trainer.algo.sequences import Batch, SequenceValues
from trainer.rollouts.request import Rollout

MAX_BYTES = 64 << 20
"""Values of one step that are stored (bytes): 16 million tokens with log-prob and entropy."""
_LEVEL = 1
"""gzip level: the values are noise to it; it only takes back what base64 adds."""


def write_token_values(
    path: Path,
    rollouts: Iterable[Rollout],
    batch: Batch,
    values: Sequence[SequenceValues],
    *,
    version: int,
    max_bytes: int = MAX_BYTES,
) -> None:
    """Write one line per rollout, in the order of `rollouts`.

    `version` is that of the weights that the step began with. Rollouts that no longer fit into
    `max_bytes` are written without values.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = _lines(rollouts, batch, values, version=version, max_bytes=max_bytes)
    text = "".join(f"{each.model_dump_json(exclude_none=True)}\n" for each in lines)
    path.write_bytes(gzip.compress(text.encode(), _LEVEL, mtime=0))


def _lines(
    rollouts: Iterable[Rollout],
    batch: Batch,
    values: Sequence[SequenceValues],
    *,
    version: int,
    max_bytes: int,
) -> Iterator[StoredTokenValues]:
    by_rollout = _by_rollout(values)
    advantages = {
        sequence.rollout_id: sequence.advantage
        for mini_batch in batch.mini_batches
        for sequence in mini_batch
    }
    left = max_bytes
    for rollout in rollouts:
        rollout_id = rollout.trajectory.rollout_id
        own = by_rollout.get(rollout_id)
        if own is None:
            yield StoredTokenValues(rollout_id=rollout_id, state="not_learned")
            continue
        gaps, entropies = b"".join(each.gaps for each in own), _joined(own)
        left -= len(gaps) + len(entropies or b"")
        fits = left >= 0
        yield StoredTokenValues(
            rollout_id=rollout_id,
            state="learned" if fits else "left_out",
            version=version,
            num_updates=own[0].num_updates,
            advantage=advantages[rollout_id],
            gaps=_text(gaps) if fits else None,
            entropies=_text(entropies) if fits and entropies is not None else None,
        )


def _by_rollout(values: Sequence[SequenceValues]) -> dict[str, list[SequenceValues]]:
    """Return the values of each rollout, its turns in order where each is a sequence of its own.

    A sequence that dynamic sampling copied is in the batch several times; the copy that fewest
    updates preceded counts.
    """
    first: dict[tuple[str, int], SequenceValues] = {}
    for each in sorted(values, key=lambda each: each.num_updates):
        first.setdefault((each.rollout_id, each.length), each)
    by_rollout: dict[str, list[SequenceValues]] = {}
    for (rollout_id, _), each in sorted(first.items()):
        by_rollout.setdefault(rollout_id, []).append(each)
    return by_rollout


def _joined(own: Sequence[SequenceValues]) -> bytes | None:
    parts = [each.entropies for each in own if each.entropies is not None]
    return b"".join(parts) if len(parts) == len(own) else None


def _text(packed: bytes) -> str:
    return base64.b64encode(packed).decode()
