"""Replay of a recorded episode: its calls in a fresh world, then the present verifier.

The worlds of minifleet follow from the key of their task alone. An episode can be graded again
where the app answers each of its calls today as it did then; otherwise its end state is not known.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pydantic import JsonValue

from hillclimb.environment.base import Grade
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS, find_task
from hillclimb.minifleet.env import MinifleetEnv

GRADING = ("env.py", "catalog.py", "framework/*.py", "apps/*/*.py")
"""Sources from which the start state, the answers and the grade of a task follow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCall:
    """One call of an episode with its answer."""

    name: str
    arguments: Mapping[str, JsonValue]
    answer: str | None
    is_error: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedEpisode:
    """The task of an episode as it was posed, and its calls in order."""

    task_key: str
    prompt: str
    env_variables: Mapping[str, str]
    calls: Sequence[RecordedCall]


class NotReplayable(Exception):
    """The end state of an episode is not known; `code` is stable."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@lru_cache(maxsize=1)
def verifier_version() -> str:
    """Return the name of the present verifiers: `minifleet-` and a digest of their sources."""
    root, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(path for pattern in GRADING for path in root.glob(pattern)):
        digest.update(f"{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return f"minifleet-{digest.hexdigest()[:12]}"


async def replayed_grade(episode: RecordedEpisode) -> Grade:
    """Return the present verifier's grade of the episode's end state.

    Raises:
        NotReplayable: `unknown_task`, there is no such task; `other_task`, its prompt or variables
            are not those of the episode; `no_answer`, a call has none; `other_answer`, the app
            answers a call otherwise today.
    """
    task = _task(episode.task_key)
    if task is None:
        raise NotReplayable("unknown_task")
    if (task.prompt, task.env_variables) != (episode.prompt, episode.env_variables):
        raise NotReplayable("other_task")
    env = MinifleetEnv(APPS[task.env_key], task)
    await env.reset()
    for call in episode.calls:
        if call.answer is None:
            raise NotReplayable("no_answer")
        result = await env.call(call.name, call.arguments)
        if (result.text, result.is_error) != (call.answer, call.is_error):
            raise NotReplayable("other_answer")
    return await env.score()


@lru_cache(maxsize=10_000)
def _task(key: str) -> Task | None:
    return find_task(key)
