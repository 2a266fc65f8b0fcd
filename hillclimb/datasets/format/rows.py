"""Rows of a dataset: the task, its canonical form and hashes, and problems of a row."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, JsonValue, field_validator

from hillclimb.spec.section import EnvKey, Section

Modality = Literal["tool_use", "computer_use", "browser_use"]
MODALITIES: tuple[Modality, ...] = ("tool_use", "computer_use", "browser_use")

MAX_DEPTH = 32
"""Limit of nesting levels in `metadata` and `env_variables`."""
MAX_VALUES = 100_000
"""Limit of values in each of them, at all levels together."""
_MAX_CHARS = 80
"""Characters of a key or of a field's name that a message repeats."""
_MAX_INT = 2**63
"""Whole numbers at or beyond this size are read differently by different JSON libraries."""

_ENCODER = json.JSONEncoder(
    ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False
)


class DatasetError(ValueError):
    """A version cannot be created with its options; the sentence says what to change."""


class RowProblem(Section):
    """Problem of one row of a file, for the person who has to fix it."""

    row: int
    """Position in the file, from 1."""
    key: str | None = None
    """The row's key, if it could be read."""
    field: str | None = None
    """The invalid field; null if the problem is the row as a whole."""
    message: str
    """The problem and its remedy."""

    @property
    def sentence(self) -> str:
        """The problem as one sentence."""
        name = f" ({self.key})" if self.key else ""
        field = f", field {self.field}" if self.field else ""
        return f"row {self.row}{name}{field}: {self.message}"


class TaskRow(Section):
    """One task of a dataset: prompt, environment and verifier.

    Example:
        TaskRow(key="task_9f", prompt="Book the cheapest hotel in Brno for 3 nights from March 5.",
                env_key="booking", env_version="v0.2.7",
                env_variables={"CURRENT_DATE": "2026-03-01", "LOGGED_IN_USER": "mira"})
    """

    key: Annotated[str, Field(min_length=1, max_length=512)]
    """Identity of the task: the same key is the same task in every version of a dataset."""
    prompt: Annotated[str, Field(min_length=1)]
    """The task's text for the model."""
    env_key: EnvKey
    """Environment of the task."""
    env_version: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Version of the environment; null is its newest."""
    data_key: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Data the environment starts from; null is its default."""
    data_version: Annotated[str, Field(min_length=1, max_length=256)] | None = None
    """Version of these data."""
    env_variables: dict[str, JsonValue] = Field(default_factory=dict)
    """Variables of the instance, for example CURRENT_DATE (an ISO date) and LOGGED_IN_USER; the
    platform gets them as they are, the model as text (`variable_texts`)."""
    verifier_code: Annotated[str, Field(min_length=1)] | None = None
    """Source of the verifier. It is stored as text and never executed by us."""
    task_modality: Modality = "tool_use"
    """Modality of the agent's actions."""
    difficulty: Annotated[int, Field(ge=1, le=3, strict=True)] | None = None
    """1 (easy) to 3 (hard)."""
    metadata: dict[str, JsonValue] = Field(default_factory=dict)
    """Anything else a task carries, such as `template` or recorded `tool_calls`."""

    @field_validator("key")
    @classmethod
    def _key_is_one_line(cls, key: str) -> str:
        if not key.isprintable() or key != key.strip():
            raise ValueError("must be printable text without spaces around it")
        return key

    @field_validator("prompt")
    @classmethod
    def _prompt_says_something(cls, prompt: str) -> str:
        if not prompt.strip():
            raise ValueError("must not be blank: write what the model is asked")
        return _checked(prompt)

    @field_validator("env_version", "data_key", "data_version", "verifier_code")
    @classmethod
    def _text_can_be_stored(cls, text: str | None) -> str | None:
        return None if text is None else _checked(text)

    @field_validator("env_variables", "metadata", mode="before")
    @classmethod
    def _objects_are_json(cls, content: object) -> object:
        fault = json_fault(content)
        if fault is not None:
            raise ValueError(fault)
        return content

    @property
    def variable_texts(self) -> dict[str, str]:
        """The variables as the model sees them: text as it is, other values as JSON."""
        return {
            name: value
            if isinstance(value, str)
            else json.dumps(value, ensure_ascii=False, sort_keys=True)
            for name, value in self.env_variables.items()
        }


class PromptlessRow(Section):
    """A row without a prompt: no task, but the historic script counts it before it drops it."""

    key: str
    env_key: str
    task_modality: Modality
    difficulty: int | None


FileRow = TaskRow | PromptlessRow


def canonical_json(row: TaskRow) -> bytes:
    """Return the row as the bytes that are stored and hashed: one line, without its newline.

    Keys are sorted, there are no spaces, text is UTF-8, and what a row does not have is left out,
    so that a field added later changes no older hash.
    """
    return _ENCODER.encode({name: value for name, value in row if value}).encode()


def row_hash(row: TaskRow) -> str:
    """Return the SHA-256 of a row's canonical form (64 hexadecimal digits)."""
    return hashlib.sha256(canonical_json(row)).hexdigest()


def content_hash(rows: Iterable[TaskRow]) -> str:
    """Return the SHA-256 over the canonical rows, each with a newline, sorted by key.

    The order of rows with distinct keys makes no difference.
    """
    digest = hashlib.sha256()
    for row in sorted(rows, key=lambda row: row.key):
        digest.update(canonical_json(row))
        digest.update(b"\n")
    return digest.hexdigest()


def fingerprint(row: TaskRow) -> str:
    """Return a hash that is equal for rows with the same content under other keys (32 digits).

    It covers the environment, the prompt and the variables as the model sees them, but not the
    version of the environment.
    """
    question = [row.env_key, row.prompt, row.variable_texts]
    return hashlib.sha256(_ENCODER.encode(question).encode()).hexdigest()[:32]


def printable(text: str) -> str:
    """Return a text of a file for messages and counts: storable, at most 80 characters."""
    text = text[: _MAX_CHARS + 1]
    text = text if text.isprintable() else ascii(text)[1:-1]
    return text if len(text) <= _MAX_CHARS else text[: _MAX_CHARS - 1] + "…"


def text_fault(text: str) -> str | None:
    """Say why a text cannot be stored as UTF-8 JSON in every database, or None."""
    if "\0" in text:
        return "holds a NUL character: remove it"
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return f"holds half of a surrogate pair at character {error.start + 1}: remove it"
    return None


def json_fault(value: object) -> str | None:
    """Say why a value cannot be stored as JSON that every reader reads alike, or None."""
    pending: list[tuple[object, int]] = [(value, 1)]
    num_values = 0
    while pending:
        item, depth = pending.pop()
        num_values += 1
        if num_values > MAX_VALUES:
            return f"holds more than {MAX_VALUES:,} values: leave out what no task needs"
        if isinstance(item, dict | list):
            if depth > MAX_DEPTH:
                return f"is nested more than {MAX_DEPTH} levels deep: flatten it"
            if isinstance(item, dict):
                pending += [(name, 0) for name in item]
                pending += [(inner, depth + 1) for inner in item.values()]
            else:
                pending += [(inner, depth + 1) for inner in item]
        elif depth == 0 and not isinstance(item, str):
            return "has a name that is not text"
        elif (fault := _scalar_fault(item)) is not None:
            return fault
    return None


def _scalar_fault(item: object) -> str | None:
    if isinstance(item, str):
        return text_fault(item)
    if isinstance(item, float) and not math.isfinite(item):
        return "holds a number that is infinite, too large or not a number: write it as text"
    if isinstance(item, int) and not -_MAX_INT <= item < _MAX_INT:
        return "holds a whole number beyond 64 bits: write it as text"
    if item is None or isinstance(item, int | float):
        return None
    return f"holds a value of type {type(item).__name__}, which JSON does not have"


def _checked(text: str) -> str:
    fault = text_fault(text)
    if fault is not None:
        raise ValueError(fault)
    return text


Storable = Annotated[str, AfterValidator(_checked)]
"""Text that every database takes."""
