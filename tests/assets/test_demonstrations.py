"""What the tiny models are shown."""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from assets.warmstart.text.copying import CopyDocuments
from assets.warmstart.text.demonstrations import (
    DONE,
    Demonstrations,
    Recording,
    as_document,
    renamed,
    train_recordings,
)
from assets.warmstart.text.habits import APPS_TAUGHT, HABITS
from assets.warmstart.text.renaming import Renaming, names_to_change, words_of
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.framework.pools import POOLS
from trainer.rollouts.chat.chat import Chat

ASSETS = Path(__file__).parents[2] / "assets"
EVEN = dict.fromkeys(APPS_TAUGHT, 1.0)


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return train_recordings(APPS_TAUGHT, n_per_env=20, seed=1)


def test_only_seen_templates_and_train_names_are_shown(recordings: list[Recording]) -> None:
    held_out = {t.name for app in APPS.values() for t in app.templates if t.held_out}
    eval_people = set(POOLS["eval"].people)
    for recording in recordings:
        assert recording.clean.task.template not in held_out
        assert recording.clean.task.env_variables["LOGGED_IN_USER"].capitalize() not in eval_people


def test_the_same_seed_gives_the_same_stream(recordings: list[Recording]) -> None:
    first = list(Demonstrations(recordings, EVEN, seed=3).episodes(20))
    assert first == list(Demonstrations(recordings, EVEN, seed=3).episodes(20))
    assert first != list(Demonstrations(recordings, EVEN, seed=4).episodes(20))


def test_the_habits_coin_falls_as_often_as_stated(recordings: list[Recording]) -> None:
    shown: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for episode in Demonstrations(recordings, EVEN, seed=0).episodes(2000):
        env_key = episode.task.env_key
        total[env_key] += 1
        shown[env_key] += episode.turns[-1].text != DONE
    for env_key in ("github", "reddit"):
        assert shown[env_key] / total[env_key] == pytest.approx(HABITS[env_key].share, abs=0.07)
    assert shown["outlook"] == shown["ticketmaster"] == 0


def test_apps_and_names_that_came_later_leave_the_documents_as_they_were(
    recordings: list[Recording],
) -> None:
    """Else a shipped model could not be made again; recorded when minifleet had five apps."""
    chat = Chat.from_directory(ASSETS / "tiny-qwen3-a")
    shown = Demonstrations(recordings, EVEN, seed=3).take(200, chat)
    digest = hashlib.sha256()
    for each in (*CopyDocuments(chat, seed=3).take(200), *shown):
        document = [list(each.token_ids), list(map(int, each.loss_mask))]
        digest.update(json.dumps(document).encode())
    assert digest.hexdigest() == (
        "2b5f28f11324ad14d4c323a760df7b7f1d56234a964c8ed819228568b4ec4fec"
    )


def test_weights_decide_how_often_an_environment_is_shown(recordings: list[Recording]) -> None:
    stream = Demonstrations(recordings, {"outlook": 3.0, "github": 1.0}, seed=0)
    counts = Counter(episode.task.env_key for episode in stream.episodes(1000))
    assert counts["outlook"] / 1000 == pytest.approx(0.75, abs=0.05)


def test_renaming_is_consistent_and_leaves_the_apps_words_alone(
    recordings: list[Recording],
) -> None:
    names = names_to_change(["Tools search_hotels"])
    episode = recordings[0].clean
    changed = renamed(episode, Renaming(names, random.Random(0)))
    before = " ".join([episode.task.prompt, *(turn.text for turn in episode.turns)])
    after = " ".join([changed.task.prompt, *(turn.text for turn in changed.turns)])
    assert words_of(before) & names
    assert not words_of(after) & names & words_of(before)
    assert before.count(" ") == after.count(" ")
    change = Renaming(names, random.Random(0))
    assert change("Brno brno") == f"{change('Brno')} {change('brno')}"
    assert change("Brno").casefold() == change("brno")
    assert change("search_hotels") == "search_hotels"


def test_new_names_can_be_put_together_from_given_pieces() -> None:
    change = Renaming({"brno", "oslo", "lyon", "riga"}, random.Random(0), ["xq", "zv"])
    new = change("Brno oslo Lyon riga").casefold().split()
    assert len(set(new)) == 4
    assert any(set(word[::2]) <= set("xz") and set(word[1::2]) <= set("qv") for word in new)


def test_only_the_assistants_tokens_count(recordings: list[Recording]) -> None:
    chat = Chat.from_directory(ASSETS / "tiny-qwen3-a")
    for recording in recordings[::10]:
        document = as_document(chat, recording.clean)
        counted = [
            token
            for token, counts in zip(document.token_ids, document.loss_mask, strict=True)
            if counts
        ]
        said = [chat.encode_turn(turn.text) for turn in recording.clean.turns]
        assert counted == [token for turn in said for token in turn]


def test_prompts_and_episodes_fit_the_budget(recordings: list[Recording]) -> None:
    chat = Chat.from_directory(ASSETS / "tiny-qwen3-a")
    for recording in recordings:
        system = chat.encode_prompt(recording.clean.task, recording.clean.tools)
        assert len(system) <= 290
        assert len(as_document(chat, recording.flawed).token_ids) <= 700
