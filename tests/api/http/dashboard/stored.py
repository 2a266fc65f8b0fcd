"""Files of trajectories as a trainer uploads them, for the pages that show them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import httpx

from hillclimb.blobs.base import BlobStore
from hillclimb.protocol.rundir import attempt_name, run_key
from tests.api.fixtures.serving import Served

FILE = "trajectories/step.jsonl.gz"


def turn(
    response: str,
    tool: str | None = None,
    arguments: Mapping[str, Any] | None = None,
    answer: str | None = None,
    *,
    is_error: bool = False,
) -> dict[str, Any]:
    """One recorded turn: what the model wrote, its call and the environment's answer."""
    return {
        "response": response,
        "tool_name": tool,
        "tool_arguments": arguments,
        "observation": answer,
        "is_error": is_error,
    }


TURNS = (
    turn(
        "<think>She wants a later date.</think>I look it up.<tool_call>x</tool_call>",
        "find_bookings",
        {"guest": "Ada Lovelace"},
        '{"bookings": [{"id": "b-17", "nights": 2}]}',
    ),
    turn(
        "<tool_call>x</tool_call>",
        "change_booking",
        {"id": "b-71", "from": "2026-05-04"},
        "No booking b-71.",
        is_error=True,
    ),
    turn("It is changed.<done>"),
)


def store_trajectories(
    store: BlobStore,
    run_id: str,
    lines: Sequence[str],
    turns: Sequence[dict[str, Any]] = TURNS,
    *,
    prompt: str = "Move Ada's booking to 4 May.",
) -> None:
    """Store a file whose lines are trajectories of these tasks, all with the same turns."""
    data = "\n".join(json.dumps(_trajectory(key, turns, prompt)) for key in lines)
    store.put(run_key(run_id, attempt_name(1), FILE), gzip.compress(data.encode()))


def _trajectory(key: str, turns: Sequence[dict[str, Any]], prompt: str) -> dict[str, Any]:
    return {
        "task": {
            "key": key,
            "env_key": "booking",
            "prompt": prompt,
            "env_variables": {"TODAY": "2026-05-01"},
        },
        "stop_reason": "done",
        "outcome": {"status": "graded", "score": 0.0},
        "turns": list(turns),
        "turn_tokens": [{"num_tokens": 30, "num_thinking_tokens": 8} for _ in turns],
        "token_ids": [1, 2],
        "action_mask": [0, 1],
        "logprobs": [-0.1],
        "weight_versions": [0],
    }


def sign_in(served: Served, browser: httpx.Client) -> httpx.Client:
    """Sign the browser in with the project's key, and return it."""
    browser.post("/login", data={"key": served.key, "next": "/"})
    return browser
