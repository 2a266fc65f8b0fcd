"""Payloads for tests of the client and the command line."""

import json
from typing import Any

from hillclimb.protocol.payloads.events import EventPayload
from hillclimb.protocol.payloads.runs import RunPayload

AT = "2026-01-02T03:04:05Z"


def run_json(**changes: Any) -> dict[str, Any]:
    """Return a run as the service sends it."""
    run = {
        "object": "run",
        "id": "run_1",
        "project_id": "prj_1",
        "name": "climb",
        "kind": "train",
        "result": None,
        "conclusion": None,
        "status": "queued",
        "desired_state": "running",
        "end_reason": None,
        "attempt": 0,
        "num_failures": 0,
        "progress": {"step": 0, "total": 9, "eta_s": None, "phase": None},
        "config_hash": "0" * 64,
        "created_by": "key:test",
        "origin": None,
        "last_seq": 1,
        "status_since": AT,
        "created_at": AT,
        "updated_at": AT,
        "started_at": None,
        "ended_at": None,
        "cost": None,
        "queue": None,
        "removed": None,
        "attempts": [],
        "tags": [],
        "links": {},
        "note": None,
        "spec": {},
    }
    return run | changes


def run_payload(**changes: Any) -> RunPayload:
    """Return a run as the client does."""
    return RunPayload.model_validate(run_json(**changes))


def event_json(kind: str, data: dict[str, Any], *, seq: int = 1) -> dict[str, Any]:
    """Return an event as the service sends it."""
    return {
        "seq": seq,
        "id": f"evt_{seq}",
        "type": kind,
        "created_at": AT,
        "run_id": "run_1",
        "attempt": None,
        "actor": "service",
        "data": data,
    }


def event_frame(kind: str, data: dict[str, Any], *, seq: int = 1) -> str:
    """Return an event as a frame of the stream."""
    body = json.dumps(event_json(kind, data, seq=seq), ensure_ascii=False)
    return f"id: {seq}\nevent: {kind}\ndata: {body}\n\n"


def event_payload(kind: str, data: dict[str, Any]) -> EventPayload:
    """Return an event as the client does."""
    return EventPayload.model_validate(event_json(kind, data))


def trajectory_json(number: int) -> dict[str, Any]:
    """Return a rollout as the trainer stores it."""
    return {
        "rollout_id": f"rollout-{number}",
        "step": 0,
        "split": "eval",
        "decoding": "sampled",
        "temperature": 1.0,
        "task": {
            "key": f"booking-{number}",
            "env_key": "booking",
            "template": "booking.t1",
            "held_out_template": False,
            "difficulty": None,
            "modality": "tool_use",
            "prompt": "Do it.",
            "env_variables": {"CURRENT_DATE": "2026-03-01"},
        },
        "sample_index": 0,
        "num_infra_retries": 0,
        "infra_errors": [],
        "stop_reason": "done",
        "outcome": {"status": "graded", "score": 1.0, "reason": None},
        "duration_s": 0.5,
        "turns": [
            {
                "response": "<tool_call>",
                "tool_name": "search",
                "tool_arguments": {"city": "Brno"},
                "observation": "3 hotels",
                "is_error": False,
                "call_index": 0,
            },
            {
                "response": "Done.",
                "tool_name": None,
                "tool_arguments": None,
                "observation": None,
                "is_error": False,
                "call_index": 0,
            },
        ],
        "turn_tokens": [
            {"num_tokens": 2, "num_thinking_tokens": 0},
            {"num_tokens": 1, "num_thinking_tokens": 0},
        ],
        "prompt_length": 2,
        "token_ids": [1, 2, 3],
        "action_mask": [0, 0, 1],
        "logprobs": [-0.25],
        "weight_versions": [0],
    }
