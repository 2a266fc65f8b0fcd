"""Generated task sets: sizes, determinism, and what train and eval never share."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import fields

import pytest

from hillclimb.environment.task import Task
from hillclimb.minifleet import tasks as tasks_module
from hillclimb.minifleet.catalog import APPS
from hillclimb.minifleet.framework.pools import POOLS, Pools
from hillclimb.minifleet.tasks import TaskGenerationError, minifleet_tasks

ENVS = tuple(APPS)


@pytest.mark.parametrize("env_key", ENVS)
def test_an_app_has_two_thousand_distinct_train_tasks_of_all_seen_templates(env_key: str) -> None:
    tasks = minifleet_tasks((env_key,), "train", 2000, 0)
    assert len({task.key for task in tasks}) == 2000
    assert len({(task.prompt, *task.env_variables.values()) for task in tasks}) == 2000
    counts = [sum(t.template == each.name for t in tasks) for each in APPS[env_key].templates]
    seen = [count for count in counts if count]
    assert not any(task.held_out_template for task in tasks)
    assert max(seen) - min(seen) <= 1


@pytest.mark.parametrize("share", [0.0, 0.25, 0.33, 1.0])
def test_eval_holds_exactly_the_share_of_held_out_templates(share: float) -> None:
    tasks = minifleet_tasks(ENVS, "eval", 50, 1, share)
    for env_key in ENVS:
        mine = [task for task in tasks if task.env_key == env_key]
        assert len(mine) == 50
        assert sum(task.held_out_template for task in mine) == round(50 * share)


def test_train_and_eval_share_no_name() -> None:
    def words(side: Pools) -> set[str]:
        return {word.casefold() for field in fields(side) for word in getattr(side, field.name)}

    train, other = words(POOLS["train"]), words(POOLS["eval"])
    assert not train & other
    for split, foreign in (("train", other), ("eval", train)):
        for task in minifleet_tasks(ENVS, split, 300, 2):  # type: ignore[arg-type]
            asked = {*task.env_variables.values(), json.dumps(task.payload["goal"])}
            said = set(re.findall(r"[a-z]+", " ".join(asked).casefold()))
            assert not said & foreign, task.key


def test_no_train_name_pool_is_small() -> None:
    for field in fields(Pools):
        assert len(getattr(POOLS["train"], field.name)) >= 12
        assert len(getattr(POOLS["eval"], field.name)) >= 3


def test_the_seed_decides_and_hash_randomisation_does_not() -> None:
    code = (
        "from hillclimb.minifleet.tasks import minifleet_tasks as m;"
        "print(hash('a'));print(repr(m(('github','reddit'),'eval',20,5,0.5)))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split("\n", 1)
        for seed in ("1", "2")
    ]
    assert runs[0][0] != runs[1][0]
    assert runs[0][1] == runs[1][1]
    here = minifleet_tasks(("github", "reddit"), "eval", 20, 5, 0.5)
    assert runs[0][1].strip() == repr(here)
    assert here != minifleet_tasks(("github", "reddit"), "eval", 20, 6, 0.5)


def test_a_key_names_the_same_task_whatever_the_seed() -> None:
    by_key: dict[str, Task] = {}
    for seed in range(40):
        for task in minifleet_tasks(("outlook",), "train", 200, seed):
            assert by_key.setdefault(task.key, task) == task
    assert re.fullmatch(r"outlook/train/[a-z_]+/\d{6}", next(iter(by_key)))


def test_every_task_says_the_date_and_the_user_and_is_plain_json() -> None:
    for task in minifleet_tasks(ENVS, "train", 40, 4):
        assert set(task.env_variables) == {"CURRENT_DATE", "LOGGED_IN_USER"}
        assert json.loads(json.dumps(dict(task.payload))) == task.payload
        assert len(task.prompt) < 140
        assert "{" not in task.prompt


@pytest.mark.parametrize(
    ("env_keys", "split", "n", "share"),
    [
        (("jira",), "train", 1, 0.0),
        (("booking", "booking"), "train", 1, 0.0),
        (("booking",), "train", 1, 0.5),
        (("booking",), "eval", -1, 0.0),
        (("booking",), "eval", 1, 1.5),
    ],
)
def test_what_cannot_be_had_is_refused(
    env_keys: tuple[str, ...], split: str, n: int, share: float
) -> None:
    with pytest.raises(TaskGenerationError):
        minifleet_tasks(env_keys, split, n, 0, share)  # type: ignore[arg-type]


def test_asking_for_more_tasks_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks_module, "_INDEX_RANGE", 3)
    n_templates = sum(not each.held_out for each in APPS["outlook"].templates)
    assert len(minifleet_tasks(("outlook",), "train", 3 * n_templates, 0)) == 3 * n_templates
    with pytest.raises(TaskGenerationError, match="fewer than"):
        minifleet_tasks(("outlook",), "train", 3 * n_templates + 1, 0)
