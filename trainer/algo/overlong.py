"""Overlong rollouts: cut off by a length limit, as their stop reason says, not their last token."""

from __future__ import annotations

from hillclimb.protocol.outcomes import StopReason
from trainer.types import Trajectory

OVERLONG = frozenset({StopReason.MAX_GENERATE_LENGTH, StopReason.MAX_INPUT_LENGTH})
"""The limits in tokens. `max_turns` and `policy_deadline` are not among them: there the policy
completed its turns without success, which its score should show."""


def is_overlong(trajectory: Trajectory) -> bool:
    """Tell whether the rollout was cut off before its policy could finish.

    Source: overlong filtering of DAPO (arXiv:2503.14476, section 3.4): such a score says more of
    the limit than of the tokens before it.
    """
    return trajectory.stop_reason in OVERLONG
