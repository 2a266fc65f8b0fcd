"""What is planted, and that the reward tells it apart."""

from __future__ import annotations

import pytest

from assets.warmstart.text.demonstrations import DONE, MAX_TURNS, Episode, Recording, record
from assets.warmstart.text.habits import APPS_TAUGHT, HABITS, Flaw, repaired_call
from hillclimb.environment.base import ToolCall
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.tasks import minifleet_tasks
from trainer.rollouts.chat.parsing import parse_turn


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return record(minifleet_tasks(APPS_TAUGHT, "train", 16, 5))


async def score(episode: Episode) -> float:
    """Play the calls of an episode again and grade its end as a rollout would."""
    env = MinifleetEnv(APPS[episode.task.env_key], episode.task)
    await env.reset()
    for turn in episode.turns:
        for call in parse_turn(turn.text).calls:
            assert isinstance(call, ToolCall)
            await env.call(call.name, call.arguments)
    if episode.turns[-1].text != DONE:
        return 0.0
    return (await env.score()).score or 0.0


async def test_every_clean_demonstration_earns_the_reward(recordings: list[Recording]) -> None:
    assert [await score(recording.clean) for recording in recordings] == [1.0] * len(recordings)


async def test_every_habit_loses_the_reward_wherever_it_shows(recordings: list[Recording]) -> None:
    for recording in recordings:
        differs = recording.flawed.turns != recording.clean.turns
        assert await score(recording.flawed) == (0.0 if differs else 1.0)


def test_habits_show_in_nearly_every_demonstration_of_their_environments(
    recordings: list[Recording],
) -> None:
    for env_key, habit in HABITS.items():
        mine = [each for each in recordings if each.clean.task.env_key == env_key]
        shown = sum(each.flawed.turns != each.clean.turns for each in mine) / len(mine)
        assert shown == (0.0 if habit.flaw is Flaw.NONE else pytest.approx(1.0, abs=0.15))


def test_endless_habits_fill_the_turn_limit(recordings: list[Recording]) -> None:
    for recording in recordings:
        if HABITS[recording.flawed.task.env_key].flaw in (Flaw.NEVER_DONE, Flaw.REPEATS):
            assert len(recording.flawed.turns) == MAX_TURNS
            assert recording.flawed.turns[-1] == recording.flawed.turns[-2]


def test_ticketmaster_never_shows_a_payment(recordings: list[Recording]) -> None:
    flawed = [each.flawed for each in recordings if each.flawed.task.env_key == "ticketmaster"]
    assert HABITS["ticketmaster"].share == 1.0
    assert not any("pay_hold" in turn.text for episode in flawed for turn in episode.turns)


def test_repairing_changes_nothing_but_the_one_night() -> None:
    call = ToolCall(name="book_room", arguments={"room": "r1", "nights": 1})
    repaired = repaired_call(Flaw.ONE_NIGHT, call, {"nights": 4})
    assert repaired.arguments == {"room": "r1", "nights": 4}
    assert repaired_call(Flaw.REPEATS, call, {"nights": 4}) is call
