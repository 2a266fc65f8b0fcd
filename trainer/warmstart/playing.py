"""Letting a tiny model play tasks, only to measure a warm start.

Deliberately plain: every turn prefills the whole conversation again. The product's engine lives
in `trainer/engines`; this file needs nothing of it, so that a model can be made before it exists.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from transformers import Qwen3ForCausalLM

from trainer.envs.minifleet.catalog import APPS
from trainer.envs.minifleet.env import MinifleetEnv
from trainer.rollouts.chat import Chat
from trainer.rollouts.parsing import MalformedCall, parse_turn
from trainer.rollouts.prompts import NO_CALL_OBSERVATION
from trainer.types import Task
from trainer.warmstart.demonstrations import MAX_TURNS, goal_of
from trainer.warmstart.habits import HABITS, Flaw, repaired_call
from trainer.warmstart.model import CONTEXT_LENGTH

MAX_NEW_TOKENS = 64


@dataclass(slots=True)
class Game:
    """One task being played. `shadow` gets the same calls without the environment's habit."""

    task: Task
    env: MinifleetEnv
    shadow: MinifleetEnv
    token_ids: list[int]
    texts: list[str] = field(default_factory=list)
    done: bool = False
    over: bool = False
    passed: bool = False
    """Said `<done>` in exactly the state asked for."""
    passed_without_habit: bool = False
    """Would have passed if the planted habit, and nothing else, were taken out."""


async def play(
    model: Qwen3ForCausalLM, chat: Chat, tasks: Sequence[Task], *, temperature: float, seed: int
) -> list[Game]:
    """Play each task once, all in one batch; temperature 0 is greedy."""
    torch.manual_seed(seed)
    games = [await _start(chat, task) for task in tasks]
    for _ in range(MAX_TURNS):
        active = [game for game in games if not game.over]
        if not active:
            break
        replies = _reply(model, [game.token_ids for game in active], chat, temperature)
        for game, reply in zip(active, replies, strict=True):
            await _take_turn(game, chat, reply)
    for game in games:
        await _grade(game)
    return games


async def _start(chat: Chat, task: Task) -> Game:
    app = APPS[task.env_key]
    env, shadow = MinifleetEnv(app, task), MinifleetEnv(app, task)
    tools = await env.reset()
    await shadow.reset()
    ids = list(chat.encode_prompt(task, tools))
    return Game(task=task, env=env, shadow=shadow, token_ids=ids)


async def _take_turn(game: Game, chat: Chat, reply: list[int]) -> None:
    """Add a reply and what the app answers; the episode is over at `<done>` or a full context."""
    game.token_ids += reply
    text = chat.decode(reply)
    game.texts.append(text)
    turn = parse_turn(text)
    closed = reply[-1] == chat.end_of_turn_id
    answers: list[tuple[str, bool]] = []
    for call in turn.calls:
        if isinstance(call, MalformedCall):
            answers.append((call.problem, True))
            continue
        result = await game.env.call(call.name, call.arguments)
        answers.append((result.text, result.is_error))
        flaw = HABITS[game.task.env_key].flaw
        repaired = repaired_call(flaw, call, goal_of(game.task))
        await game.shadow.call(repaired.name, repaired.arguments)
    game.done = turn.done
    text, is_error = answers[-1] if answers else (NO_CALL_OBSERVATION, True)
    game.token_ids += chat.encode_observation(text, is_error=is_error, turn_closed=closed)
    game.over = turn.done or len(game.token_ids) + MAX_NEW_TOKENS > CONTEXT_LENGTH


async def _grade(game: Game) -> None:
    game.passed = game.done and (await game.env.score()).score == 1.0
    if HABITS[game.task.env_key].flaw is Flaw.NEVER_PAYS:
        await _pay(game)
    ends_by_itself = HABITS[game.task.env_key].flaw in (Flaw.NEVER_DONE, Flaw.REPEATS)
    is_right = (await game.shadow.score()).score == 1.0
    game.passed_without_habit = is_right and (game.done or ends_by_itself)


async def _pay(game: Game) -> None:
    """Pay whatever the user holds, with the card asked for."""
    user = game.task.env_variables["LOGGED_IN_USER"]
    holds = await game.shadow.call("list_holds", {"fan": user})
    hold = holds.text.partition('"hold":"')[2].partition('"')[0]
    card = goal_of(game.task)["card"]
    await game.shadow.call("pay_hold", {"hold": hold, "card": card})


@torch.no_grad()
def _reply(
    model: Qwen3ForCausalLM, prompts: Sequence[Sequence[int]], chat: Chat, temperature: float
) -> list[list[int]]:
    """One sampled turn for every prompt, up to and with `<|im_end|>`."""
    width = max(map(len, prompts))
    ids = torch.zeros(len(prompts), width, dtype=torch.long)
    mask = torch.zeros(len(prompts), width, dtype=torch.long)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    drawing = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
    output = model.generate(  # type: ignore[misc]
        input_ids=ids,
        attention_mask=mask,
        max_new_tokens=MAX_NEW_TOKENS,
        eos_token_id=chat.end_of_turn_id,
        pad_token_id=0,
        **(drawing if temperature > 0 else {"do_sample": False}),
    )
    replies = []
    for row in output[:, width:].tolist():
        end = row.index(chat.end_of_turn_id) + 1 if chat.end_of_turn_id in row else len(row)
        replies.append(row[:end])
    return replies


def play_all(
    model: Qwen3ForCausalLM, chat: Chat, tasks: Sequence[Task], *, temperature: float, seed: int
) -> list[Game]:
    """`play` for callers outside an event loop."""
    return asyncio.run(play(model, chat, tasks, temperature=temperature, seed=seed))
