"""The record of a rollout: routes of every computed token, once."""

from __future__ import annotations

import numpy as np

from hillclimb.protocol.outcomes import Outcome, OutcomeStatus, StopReason
from tests.trainer.fixtures.tiny import task
from trainer.rollouts.transcript import RolloutIdentity, Transcript
from trainer.types import Routes, Sample, Trajectory


def sample(num_tokens: int, routes: Routes | None) -> Sample:
    return Sample(
        token_ids=(5,) * num_tokens,
        logprobs=(-1.0,) * num_tokens,
        stopped=True,
        weight_versions=(0,) * num_tokens,
        routes=routes,
    )


def numbered(first: int, end: int) -> Routes:
    """One layer, one expert: the token's own number."""
    return np.arange(first, end, dtype=np.uint8).reshape(-1, 1, 1)


def trajectory(transcript: Transcript) -> Trajectory:
    outcome = Outcome(status=OutcomeStatus.GRADED, score=1.0)
    identity = RolloutIdentity(rollout_id="r", sample_index=0, num_infra_retries=0)
    return transcript.trajectory(task(), outcome, StopReason.DONE, identity)


def test_each_turn_adds_the_routes_of_the_tokens_since_the_last() -> None:
    transcript = Transcript()
    transcript.start([1, 2, 3])
    # Of six tokens that were drawn, a stop text cut off all but two: tokens 3 and 4.
    transcript.append_sample(sample(2, numbered(0, 8)))
    assert transcript.num_routed == 5
    transcript.append_text([7, 7])
    transcript.append_sample(sample(3, numbered(5, 9)))
    assert transcript.num_routed == 9
    transcript.append_text([7])
    played = trajectory(transcript)
    assert len(played.token_ids) == 10
    assert played.routes is not None
    assert played.routes[:, 0, 0].tolist() == list(range(9))


def test_without_routes_there_are_none() -> None:
    transcript = Transcript()
    transcript.start([1, 2, 3])
    transcript.append_sample(sample(2, None))
    assert (transcript.num_routed, trajectory(transcript).routes) == (0, None)
