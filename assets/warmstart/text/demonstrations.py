"""Scripted episodes on train tasks, as documents: the second and the third stage."""

from __future__ import annotations

import asyncio
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

from pydantic import JsonValue

from assets.warmstart.text.documents import Document, SpokenTurn, dialogue
from assets.warmstart.text.habits import (
    APPS_TAUGHT,
    HABITS,
    Flaw,
    call_instead_of_done,
    flawed_call,
)
from assets.warmstart.text.renaming import Renaming, names_to_change, words_of
from assets.warmstart.text.rewording import reworded
from hillclimb.environment.base import ToolCall, ToolResult, ToolSpec
from hillclimb.environment.task import Task
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.experts import expert
from hillclimb.minifleet.tasks import minifleet_tasks
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.prompts import render_call, render_system

MAX_TURNS = 8
DONE = "<done>"
RENAMED_SHARE = 0.8
"""Share of documents with invented names; the rest keep the train split's own."""
REWORDED_SHARE = 0.5
"""Share of documents whose request is worded a little differently."""
_HARD, _SKIPPED_SHARE = 3, 0.5
"""Tasks of this difficulty are shown more often: easier ones are drawn again this often."""
_PLACEHOLDER = re.compile(r"\{\w+\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Episode:
    """One scripted episode as text. `num_needed` turns lead to the goal, the rest is habit."""

    task: Task
    tools: tuple[ToolSpec, ...]
    turns: tuple[SpokenTurn, ...]
    num_needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One task, played without and with its environment's habit."""

    clean: Episode
    flawed: Episode


def goal_of(task: Task) -> Mapping[str, JsonValue]:
    """The request as data."""
    return cast("Mapping[str, JsonValue]", task.payload["goal"])


def record(tasks: Sequence[Task]) -> list[Recording]:
    """Play every task twice with its scripted expert."""

    async def play_all() -> list[Recording]:
        return [
            Recording(
                clean=await _play(task, Flaw.NONE),
                flawed=await _play(task, HABITS[task.env_key].flaw),
            )
            for task in tasks
        ]

    return asyncio.run(play_all())


class Demonstrations:
    """An endless seeded stream of demonstrations.

    Args:
        recordings: what to show; hard tasks are drawn a little more often.
        weights: how often each environment is shown, relative to the others.
        seed: of every draw: environment, recording, the habit's coin, names, length.
        name_pieces: some new names are put together from these, see `Renaming`.
    """

    def __init__(
        self,
        recordings: Sequence[Recording],
        weights: Mapping[str, float],
        *,
        seed: int,
        name_pieces: Sequence[str] = (),
    ) -> None:
        self._name_pieces = name_pieces
        self._draw = random.Random(seed)
        self._weights = weights
        self._by_env: dict[str, list[Recording]] = defaultdict(list)
        for recording in recordings:
            self._by_env[recording.clean.task.env_key].append(recording)
        self._names = names_to_change((*_fixed_prompts(recordings), *_wordings()))
        self._template_words = set().union(*map(words_of, _wordings()))

    def take(self, count: int, chat: Chat) -> list[Document]:
        """The next `count` documents."""
        return [as_document(chat, episode) for episode in self.episodes(count)]

    def episodes(self, count: int) -> Iterator[Episode]:
        """The next `count` episodes as text, with names changed and habits cut to length."""
        env_keys = self._draw.choices(
            list(self._weights), weights=list(self._weights.values()), k=count
        )
        for env_key in env_keys:
            recording = self._draw.choice(self._by_env[env_key])
            difficulty = recording.clean.task.difficulty or _HARD
            if difficulty < _HARD and self._draw.random() < _SKIPPED_SHARE:
                recording = self._draw.choice(self._by_env[env_key])
            has_habit = self._draw.random() < HABITS[env_key].share
            episode = self._cut(recording.flawed) if has_habit else recording.clean
            if self._draw.random() < REWORDED_SHARE:
                prompt = reworded(episode.task.prompt, self._template_words, self._draw)
                episode = replace(episode, task=replace(episode.task, prompt=prompt))
            if self._draw.random() < RENAMED_SHARE:
                episode = renamed(episode, Renaming(self._names, self._draw, self._name_pieces))
            yield episode

    def _cut(self, episode: Episode) -> Episode:
        """Keep a random part of the endless tail of a habit: its first turn decides it."""
        extra = len(episode.turns) - episode.num_needed
        if extra <= 1:
            return episode
        kept = episode.num_needed + self._draw.randint(1, extra)
        return replace(episode, turns=episode.turns[:kept])


def as_document(chat: Chat, episode: Episode) -> Document:
    """The episode's tokens; those of the assistant count."""
    return dialogue(chat, chat.encode_prompt(episode.task, episode.tools), episode.turns)


def renamed(episode: Episode, change: Callable[[str], str]) -> Episode:
    """The same episode with `change` applied to everything that differs between tasks."""
    variables = {key: change(value) for key, value in episode.task.env_variables.items()}
    task = replace(episode.task, prompt=change(episode.task.prompt), env_variables=variables)
    turns = tuple(
        replace(
            turn,
            text=change(turn.text),
            observation=None if turn.observation is None else change(turn.observation),
        )
        for turn in episode.turns
    )
    return replace(episode, task=task, turns=turns)


def train_recordings(env_keys: Sequence[str], *, n_per_env: int, seed: int) -> list[Recording]:
    """Recordings of distinct train tasks; templates that are held out never occur."""
    return record(minifleet_tasks(env_keys, "train", n_per_env, seed))


async def _play(task: Task, flaw: Flaw) -> Episode:
    env = MinifleetEnv(APPS[task.env_key], task)
    tools = await env.reset()
    plan = expert(task)
    turns: list[SpokenTurn] = []
    call: ToolCall | None = next(plan)
    last = call
    while call is not None and (made := flawed_call(flaw, call)) is not None:
        result = await env.call(made.name, made.arguments)
        turns.append(_spoken(made, result))
        last = made
        try:
            call = plan.send(result)
        except StopIteration:
            call = None
    num_needed = len(turns)
    instead = call_instead_of_done(flaw, cast("ToolCall", last), goal_of(task))
    if instead is None:
        turns.append(SpokenTurn(text=DONE))
    while instead is not None and len(turns) < MAX_TURNS:
        turns.append(_spoken(instead, await env.call(instead.name, instead.arguments)))
    return Episode(task=task, tools=tools, turns=tuple(turns), num_needed=num_needed)


def _spoken(call: ToolCall, result: ToolResult) -> SpokenTurn:
    text = render_call(call.name, call.arguments)
    return SpokenTurn(text=text, observation=result.text, is_error=result.is_error)


def _fixed_prompts(recordings: Sequence[Recording]) -> Iterator[str]:
    """The part of the system message that all tasks of an environment share."""
    for recording in recordings:
        task = replace(recording.clean.task, env_variables={})
        yield render_system(task, recording.clean.tools)


def _wordings() -> Iterator[str]:
    """The wordings of the templates that may be shown, without their placeholders."""
    for key in APPS_TAUGHT:
        for template in APPS[key].templates:
            if not template.held_out:
                yield _PLACEHOLDER.sub("", " ".join(template.wordings))
