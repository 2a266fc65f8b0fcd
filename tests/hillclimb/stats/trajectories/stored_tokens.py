"""A rollout of eight tokens as the trainer stores it: every number here was computed by hand.

    position   0             1      2     3      4      5     6     7
    token      <|im_start|>  " Hi"  "ca"  C3     A9     "\n"  "ok"  <|im_end|>
    drawn by   -             -      turn 1       -      -     turn 2

The third token is the first byte of "é" and the fourth the second one, which the policy did not
draw. In float16 the gaps are 3800, B400, 1400 and 0000, the entropies 3E00, 0000, 4000 and 3400.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.rundir import run_key, token_values_file, trajectory_file, vocabulary_file

NAME = "step"
TOKEN_IDS = (5, 0, 1, 2, 3, 4, 7, 6)
MASK = (0, 0, 1, 1, 0, 0, 1, 1)
LOGPROBS = (-0.5, -1.0, -0.25, -2.0)
VERSIONS = (3, 3, 4, 4)
GAPS = (0.5, -0.25, 2.0**-10, 0.0)
ENTROPIES = (1.5, 0.0, 2.0, 0.25)
GAPS_TEXT = "ADgAtAAUAAA="
ENTROPIES_TEXT = "AD4AAABAADQ="
VOCABULARY = [" Hi", "ca", [0xC3], [0xA9], "\n", "<|im_start|>", "<|im_end|>", "ok"]


def learned(rollout_id: str, **changes: Any) -> str:
    """Return the line of a rollout that the learner learned from."""
    line = {
        "rollout_id": rollout_id,
        "state": "learned",
        "version": 4,
        "num_updates": 1,
        "advantage": 0.5,
        "gaps": GAPS_TEXT,
        "entropies": ENTROPIES_TEXT,
    }
    return json.dumps(line | changes, separators=(",", ":"))


def not_learned(rollout_id: str) -> str:
    """Return the line of a rollout that gave no gradient."""
    return f'{{"rollout_id":"{rollout_id}","state":"not_learned"}}'


def trajectory(key: str = "booking-0", **changes: Any) -> dict[str, Any]:
    """Return the trajectory."""
    turn = {"tool_name": None, "tool_arguments": None, "observation": None, "is_error": False}
    return {
        "task": {"key": key, "env_key": "booking", "prompt": "Hi", "env_variables": {}},
        "stop_reason": "done",
        "outcome": {"status": "graded", "score": 1.0},
        "turns": [{"response": "ca", **turn, "observation": "é"}, {"response": "ok", **turn}],
        "turn_tokens": [{"num_tokens": 2, "num_thinking_tokens": 0}] * 2,
        "token_ids": list(TOKEN_IDS),
        "action_mask": list(MASK),
        "logprobs": list(LOGPROBS),
        "weight_versions": list(VERSIONS),
    } | changes


def store_trajectories(store: BlobStore, run_id: str, trajectories: Sequence[Any]) -> None:
    """Store a file of trajectories of the first attempt."""
    text = "".join(f"{json.dumps(each)}\n" for each in trajectories)
    store.put(run_key(run_id, trajectory_file(1, NAME)), gzip.compress(text.encode()))


def store_values(store: BlobStore, run_id: str, lines: Sequence[str]) -> None:
    """Store the learner's values beside it."""
    text = "".join(f"{line}\n" for line in lines)
    store.put(run_key(run_id, token_values_file(1, NAME)), gzip.compress(text.encode()))


def store_vocabulary(store: BlobStore, run_id: str, entries: object = VOCABULARY) -> None:
    """Store the texts of the tokens."""
    data = gzip.compress(json.dumps(entries).encode())
    store.put(run_key(run_id, vocabulary_file(1)), data)
