"""The labels of scripted rollouts: enough of each, consistent with the types, and repeatable."""

import asyncio
from collections import Counter

import pytest

from hillclimb.minifleet.catalog import APPS
from hillclimb.protocol.outcomes import StopReason
from tests.hillclimb.stats.trajectories.labelled import (
    PATTERNS,
    LabelledConversation,
    labelled_conversations,
)
from tests.hillclimb.stats.trajectories.labelled.catalog import SCRIPTS
from tests.hillclimb.stats.trajectories.labelled.play import play

_WITHOUT_TURNS = (StopReason.NOT_STARTED, StopReason.POLICY_DEADLINE, StopReason.INFRA_ERROR)


def test_the_rollouts_are_many_of_every_app_and_differ_in_name() -> None:
    assert len(labelled_conversations()) >= 1000
    names = {each.name for each in labelled_conversations()}
    assert len(names) == len(labelled_conversations())
    per_app = Counter(each.conversation.env_key for each in labelled_conversations())
    assert set(per_app) == set(APPS)
    assert min(per_app.values()) >= 75
    assert len(PATTERNS) == 13


def test_equal_scripts_play_equal_rollouts() -> None:
    by_name = {each.name: each for each in labelled_conversations()}
    for script in SCRIPTS:
        again = asyncio.run(play(script, script.times - 1))
        assert by_name[again.name] == again


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_has_positives_of_many_kinds_and_apps(pattern: str) -> None:
    positives = [each for each in labelled_conversations() if pattern in each.patterns]
    scripted = [each for each in positives if each.name.startswith(f"{pattern}/")]
    assert len(positives) >= 30
    assert len(scripted) >= 25
    assert len({each.kind for each in scripted}) >= 5
    assert len({each.conversation.env_key for each in positives}) == len(APPS)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_pattern_has_near_misses_of_at_least_five_kinds(pattern: str) -> None:
    near = [each for each in labelled_conversations() if each.near_miss_of == pattern]
    kinds = Counter(each.kind for each in near)
    assert len(kinds) >= 5
    assert min(kinds.values()) >= 4


def test_a_script_shows_what_it_is_written_for_and_nothing_that_it_nearly_shows() -> None:
    conversations = labelled_conversations()
    for script in SCRIPTS:
        if script.family == "ordinary":
            continue
        for number in range(script.times):
            name = f"{script.family}/{script.kind}/"
            played = [each for each in conversations if each.name.startswith(name)][number]
            assert (script.family in played.patterns) is not script.is_near_miss, played.name


def test_labels_are_known_and_many_rollouts_have_none() -> None:
    assert all(each.patterns <= set(PATTERNS) for each in labelled_conversations())
    clean = [each for each in labelled_conversations() if not each.patterns]
    assert sum(each.conversation.passed is True for each in clean) >= 100
    assert sum(each.conversation.passed is False for each in clean) >= 50


def test_every_rollout_is_consistent() -> None:
    for each in labelled_conversations():
        _check_ending(each)
        _check_turns(each)


def _check_ending(each: LabelledConversation) -> None:
    played, turns = each.conversation, each.conversation.turns
    reason = played.stop_reason
    assert not any(turn.says_done for turn in turns[:-1]), each.name
    assert (reason is StopReason.DONE) == bool(turns and turns[-1].says_done), each.name
    assert turns or reason in _WITHOUT_TURNS, each.name
    assert (played.passed is None) == (played.score is None), each.name
    assert played.score is None or played.passed == (played.score >= 1.0), each.name
    if reason in (StopReason.INFRA_ERROR, StopReason.NOT_STARTED):
        assert played.score is None, each.name


def _check_turns(each: LabelledConversation) -> None:
    turns = each.conversation.turns
    for turn in turns[:-1]:
        assert (turn.reply is None) == bool(turn.calls), each.name
    for turn in turns:
        counts = (turn.num_tokens, turn.num_thinking_tokens)
        assert (counts[0] is None) == (counts[1] is None), each.name
        assert (counts[1] or 0) <= (counts[0] or 0), each.name
        assert bool(turn.thinking) == bool(counts[1]) or counts[1] is None, each.name
        assert turn.text == turn.text.strip(), each.name
        for call in turn.calls:
            assert call.answer is not None or not call.is_error, each.name
