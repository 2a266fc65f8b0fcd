"""The text the tokenizer is trained on: demonstrations and copy documents with invented names."""

from __future__ import annotations

import random
from collections.abc import Iterator

from assets.warmstart.text.demonstrations import Demonstrations, Episode
from assets.warmstart.text.words import invented_value
from trainer.rollouts.chat.prompts import render_observation, render_system


def corpus(
    demonstrations: Demonstrations, *, num_episodes: int, num_values: int, seed: int
) -> Iterator[str]:
    """Conversations as text without control tokens, then lines of invented values."""
    for episode in demonstrations.episodes(num_episodes):
        yield _conversation(episode)
    draw = random.Random(seed)
    for _ in range(num_values):
        yield f"copy {invented_value(draw)}"


def _conversation(episode: Episode) -> str:
    parts = [f"system\n{render_system(episode.task, episode.tools)}\nuser\n{episode.task.prompt}\n"]
    for turn in episode.turns:
        parts.append(f"assistant\n{turn.text}\n")
        if turn.observation is not None:
            parts.append(f"user\n{render_observation(turn.observation, is_error=turn.is_error)}\n")
    return "".join(parts)
