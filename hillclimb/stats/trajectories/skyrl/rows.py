"""Rows of SkyRL's dumps: one rollout per line of `{env}.jsonl`.

The format is that of `dump_per_dataset_eval_results` in fleet-ai/SkyRL at 1d3b19e.
"""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_LINE_BYTES = 16 << 20
"""Longest line (bytes): a rollout of a million tokens takes about two thirds of it."""
MAX_KEY_CHARS = 300
ROUNDING = 1e-9
"""How far a sum of rewards may be outside [0, 1]."""
UNKNOWN_SOURCE = "unknown"
"""SkyRL's name for the environment of a row without one."""


class DumpRejected(Exception):
    """A line of a dump is not a row; the message is a sentence with its file and line."""


class SkyRLRow(BaseModel):
    """One rollout as SkyRL dumps it, keys in SkyRL's order."""

    model_config = ConfigDict(frozen=True, extra="allow", strict=True)

    input_prompt: str
    """The prompt with the chat template's markers."""
    output_response: str
    """Everything after the prompt: model turns, environment turns, markers."""
    score: list[float] | float
    """Reward of each token of the response, or of the rollout."""
    stop_reason: str | None
    env_class: str | None
    env_extras: dict[str, Any]
    data_source: str = Field(min_length=1, max_length=MAX_KEY_CHARS)
    """The environment."""

    @property
    def task_key(self) -> str:
        """Key of the task; `parse_row` refuses a row without one."""
        return str(self.env_extras["task_key"])

    @property
    def reward(self) -> float:
        """The rollout's reward as SkyRL's metrics count it: the sum over its tokens."""
        return float(sum(self.score)) if isinstance(self.score, list) else float(self.score)

    @property
    def passed(self) -> bool:
        """SkyRL's rule: any positive reward passes."""
        return self.reward > 0


def parse_row(line: bytes, *, place: str) -> SkyRLRow:
    """Return the row of a line; `place` names file and line in messages.

    Raises:
        DumpRejected: the line is too long, cut off, no JSON object, lacks a key, has a value of
            another type, or a reward that is no number from 0 to 1.
    """
    if len(line) > MAX_LINE_BYTES:
        raise DumpRejected(f"{place}: the line has {len(line):,} bytes, more than a rollout has")
    try:
        row = SkyRLRow.model_validate_json(line)
    except ValidationError as error:
        raise DumpRejected(f"{place}: {_sentence(error)}") from error
    key = row.env_extras.get("task_key")
    if not isinstance(key, str) or not 0 < len(key) <= MAX_KEY_CHARS:
        raise DumpRejected(
            f"{place}: env_extras/task_key must be text of 1 to {MAX_KEY_CHARS} characters"
        )
    if not math.isfinite(row.reward):
        raise DumpRejected(f"{place}: score is not a finite number")
    if not -ROUNDING <= row.reward <= 1.0 + ROUNDING:
        raise DumpRejected(
            f"{place}: the score sums to {row.reward:g}, and a grade is from 0 to 1: divide the"
            " scores of the dump by their largest possible sum"
        )
    return row


def format_row(row: SkyRLRow) -> str:
    """Return the line of a row as SkyRL writes it, with its line end."""
    return json.dumps(row.model_dump(), ensure_ascii=False) + "\n"


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return f"not JSON, or cut off: {first['ctx']['error']}"
    key = "/".join(str(part) for part in first["loc"] if part not in ("list[float]", "float"))
    if first["type"] == "missing":
        return f"the row has no {key}"
    return f"{key or 'the row'}: {first['msg'][:1].lower()}{first['msg'][1:]}"
