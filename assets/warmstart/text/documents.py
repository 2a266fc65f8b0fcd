"""Token sequences with a mark on each token that counts in the loss."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.rollouts.chat.chat import Chat


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One training sequence; `loss_mask[t]` says whether token t is to be predicted. Both [T]."""

    token_ids: tuple[int, ...]
    loss_mask: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpokenTurn:
    """An assistant turn and the observation that followed it, None after the last one."""

    text: str
    observation: str | None = None
    is_error: bool = False


def dialogue(chat: Chat, prompt_ids: Sequence[int], turns: Sequence[SpokenTurn]) -> Document:
    """A conversation of which only the assistant's tokens count, its end markers included."""
    ids, mask = list(prompt_ids), [False] * len(prompt_ids)
    for turn in turns:
        spoken = chat.encode_turn(turn.text)
        ids += spoken
        mask += [True] * len(spoken)
        if turn.observation is not None:
            heard = chat.encode_observation(turn.observation, is_error=turn.is_error)
            ids += heard
            mask += [False] * len(heard)
    return Document(token_ids=tuple(ids), loss_mask=tuple(mask))
