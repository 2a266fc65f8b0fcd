"""`md5_threshold` gives each task the split that the historic script gave it."""

from __future__ import annotations

import hashlib
import random
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.filter.filters import FilterOptions
from hillclimb.datasets.prepare import PrepareOptions, prepare
from hillclimb.datasets.read.reading import Reading
from hillclimb.datasets.split.historic import EXCLUDED_TASKS
from hillclimb.datasets.split.policies import PRESETS, Md5ThresholdPolicy
from tests.hillclimb.datasets.historic import Call, Constants, Raw, historic_split
from tests.hillclimb.datasets.tasks import tasks

NOW = datetime(2026, 3, 1, tzinfo=UTC)
ENVS = ["amazon", "booking", "carlisle", "fira", "fostgres", "github", "google-maps", "hubspot"]
ENVS += ["instacart", "outlook", "reddit", "ticketmaster", "wallst", "zillow"]
MODALITIES = ["tool_use", "computer_use", "browser_use"]
NUM_DATASETS = 60


def raw_dataset(rng: random.Random) -> list[Raw]:
    """A file as Fleet writes it: aliases, repeated rows, any order, sizes from 1 to hundreds."""
    rows: list[Raw] = []
    for env in rng.sample(ENVS, rng.randrange(1, len(ENVS) + 1)):
        for _ in range(rng.choice((1, 4, 20, 26, 60, 150, 400))):
            key = f"task_{rng.randrange(10**12):012x}_{rng.choice('abcé')}"
            rows.append(
                {
                    rng.choice(("key", "task_key")): key,
                    rng.choice(("env_key", "env_id")): env,
                    "prompt": "" if key[-3] in "05" else f"Do {key}.",
                    "task_modality": rng.choices(MODALITIES, (6, 2, 1))[0],
                    "difficulty": rng.choice((1, 2, 3, None)),
                }
            )
    rows += rng.choices(rows, k=rng.choice((0, 0, len(rows) // 10)))
    rng.shuffle(rows)
    return rows


def raw_task(env: str, key: str) -> Raw:
    return {"key": key, "env_key": env, "prompt": f"Do {key}.", "task_modality": "tool_use"}


def a_call(rng: random.Random, rows: list[Raw]) -> Call:
    some = rng.sample(ENVS, 3)
    return Call(
        modality=rng.choice(("tool_use", "tool_use", "computer_use")),
        env_filter=rng.choice((None, None, ", ".join(rng.sample(ENVS, 5)))),
        difficulty_filter=rng.choice((None, None, "1,2", "3")),
        max_tasks=rng.choice((None, None, None, len(rows) // 3 + 1)),
        excluded_envs=tuple(rng.choice(((), some[:1]))),
        excluded_keys=tuple(
            str(row.get("key") or row.get("task_key")) for row in rng.sample(rows, 1)
        ),
    )


def some_constants(rng: random.Random) -> Constants:
    return Constants(
        eval_ratio=rng.choice((0.02, 0.1, 0.2, 0.3, 1 / 3, 0.07, 0.0, 1.0)),
        min_eval_samples=rng.choice((0, 1, 5, 10)),
        max_eval_samples=rng.choice((None, 0, 7, 20, 30)),
        max_env_train_ratio=rng.choice((0.05, 0.2, 0.2, 0.5, 1.0)),
        max_eval_prompts=rng.choice((None, 1, 20, 60, 96)),
        min_per_env=rng.choice((0, 4, 8)),
        held_out=rng.choice(({}, {"tool_use": ["outlook"], "computer_use": ["instacart"]})),
    )


def policy_of(constants: Constants) -> Md5ThresholdPolicy:
    return Md5ThresholdPolicy.model_validate(
        {
            "eval_ratio": constants.eval_ratio,
            "min_eval_per_env": constants.min_eval_samples,
            "max_eval_per_env": constants.max_eval_samples,
            "max_eval_total": constants.max_eval_prompts,
            "keep_eval_per_env": constants.min_per_env,
            "max_env_train_share": constants.max_env_train_ratio,
            "held_out_envs": constants.held_out,
        }
    )


def options_of(call: Call, policy: Md5ThresholdPolicy) -> PrepareOptions:
    filters: dict[str, Any] = {"modality": call.modality, "max_tasks": call.max_tasks}
    if call.max_tasks:
        filters["max_tasks_by"] = "file_order"
    if call.env_filter:
        filters["env_keys"] = call.env_filter.split(", ")
    if call.difficulty_filter:
        filters["difficulty"] = [int(level) for level in call.difficulty_filter.split(",")]
    return PrepareOptions(filters=FilterOptions.model_validate(filters), split=policy)


def ours(rows: list[Raw], call: Call, policy: Md5ThresholdPolicy) -> tuple[set[str], set[str]]:
    exclusions = [Exclusion(scope="env", key=key, reason="out") for key in call.excluded_envs]
    exclusions += [Exclusion(scope="task", key=key, reason="out") for key in call.excluded_keys]
    reading = Reading(drops_empty_prompts=True)
    made = prepare(reading.rows_of(rows), options_of(call, policy), now=NOW, exclusions=exclusions)
    assert reading.problems == []
    return (
        {each.key for each in made.split if each.split == "train"},
        {each.key for each in made.split if each.split == "eval"},
    )


@pytest.mark.parametrize("seed", range(3))
def test_it_matches_the_historic_rules_on_random_datasets(seed: int) -> None:
    rng = random.Random(seed)
    num_compared = num_eval = num_cut = 0
    while num_compared < NUM_DATASETS / 3:
        rows, constants = raw_dataset(rng), some_constants(rng)
        call = a_call(rng, rows)
        train, evals = historic_split(rows, call, constants)
        if not train and not evals:
            continue  # the script writes no files then
        assert ours(rows, call, policy_of(constants)) == (train, evals), (call, constants)
        num_compared += 1
        num_eval += bool(evals)
        num_cut += bool(constants.max_eval_prompts and len(evals) == constants.max_eval_prompts)
    assert num_eval > NUM_DATASETS / 12, "most datasets have eval tasks"
    assert num_cut > 0, "some reach the cap of eval tasks"


LEFT_OUT = sorted(EXCLUDED_TASKS)
LEFT_OUT_HASH = "14f1409d2b7de1df57994c82489362ca57f74c1cf39d3514f60c9b3d2f17d5f9"
"""SHA-256 of the script's TASKS_MISSING_CURRENT_DATE, sorted, one per line."""


def test_the_tasks_left_out_by_name_are_those_of_the_script() -> None:
    assert len(LEFT_OUT) == 21
    assert hashlib.sha256("\n".join(LEFT_OUT).encode()).hexdigest() == LEFT_OUT_HASH


def test_the_named_constants_are_those_of_the_script() -> None:
    expected = {
        "first": Constants(
            0.02, 5, None, 1.0, None, 0, {"tool_use": ["outlook"], "computer_use": ["instacart"]}
        ),
        "v0.3": Constants(0.1, 5, 30, 1.0, 50, 0),
        "v1": Constants(0.2, 5, 20, 0.2, 60, 4),
        "v2": Constants(0.2, 5, 20, 0.2, 96, 8),
    }
    assert set(PRESETS) == set(expected)
    rng = random.Random(9)
    rows = [row for _ in range(4) for row in raw_dataset(rng)]
    rows += [raw_task("dropbox", f"task_dropbox_{n}") for n in range(60)]
    rows += [raw_task("zillow", key) for key in LEFT_OUT]
    rng.shuffle(rows)
    for name, constants in expected.items():
        leaves_out = name in ("v1", "v2")
        call = Call(
            modality="tool_use",
            excluded_envs=("dropbox",) if leaves_out else (),
            excluded_keys=tuple(LEFT_OUT) if leaves_out else (),
        )
        policy = Md5ThresholdPolicy.model_validate({"preset": name})
        made = ours(rows, Call(modality="tool_use"), policy)
        assert made == historic_split(rows, call, constants), name
    whole = Md5ThresholdPolicy(preset="v2", historic_exclusions=False)
    train, evals = ours(rows, Call(modality="tool_use"), whole)
    assert (train | evals) & set(LEFT_OUT), "left in if the version says so"
    mine = Md5ThresholdPolicy(preset="v1", max_eval_total=7)
    assert (mine.max_eval_total, mine.keep_eval_per_env) == (7, 4)
    assert Md5ThresholdPolicy.model_validate(mine.model_dump()) == mine
    with pytest.raises(ValidationError, match="preset"):
        Md5ThresholdPolicy.model_validate({"preset": "v9"})


def test_what_is_left_out_by_name_says_so_unless_the_user_said_why() -> None:
    rows = [raw_task("dropbox", "d1"), raw_task("dropbox", "d2"), raw_task("booking", "b")]
    rows.append(raw_task("zillow", LEFT_OUT[0]))
    own = Exclusion(scope="task", key="d2", reason="too easy")
    options = PrepareOptions(split=Md5ThresholdPolicy(preset="v2", max_env_train_share=None))
    made = prepare(Reading().rows_of(rows), options, now=NOW, exclusions=[own])
    assert {each.key: each.reason for each in made.split} == {
        "b": None,
        "d1": "split: the historic script left this environment out, its instances timed out",
        "d2": "user: too easy",
        LEFT_OUT[0]: "split: the historic script left this task out, it lacks CURRENT_DATE",
    }
    by_rank = prepare(Reading().rows_of(rows), PrepareOptions(), now=NOW)
    assert all(each.reason is None for each in by_rank.split), "other policies leave none out"


def test_a_row_without_a_prompt_that_is_left_out_by_name_counts_for_no_size() -> None:
    """At most 7 of 40 or of 61 tasks: other thresholds, so that some tasks are eval in one only."""
    rows = [raw_task("zillow", f"task_{n}") for n in range(40)]
    blank = [{**raw_task("zillow", key), "prompt": ""} for key in LEFT_OUT]
    call = Call(modality="tool_use", excluded_keys=tuple(LEFT_OUT))
    constants = Constants(0.2, 5, 7, 0.2, 96, 8)
    policy = Md5ThresholdPolicy(max_eval_per_env=7)
    expected = historic_split([*rows, *blank], call, constants)
    assert ours([*rows, *blank], Call(modality="tool_use"), policy) == expected
    counted = historic_split([*rows, *blank], Call(modality="tool_use"), constants)
    assert counted != expected


def test_the_defects_that_made_rank_the_default_are_there() -> None:
    """500 tasks of one environment: a fifth stays for training; a target of 5 gives other sizes."""
    options = PrepareOptions(split=Md5ThresholdPolicy())
    one_env = prepare(tasks({"booking": 500}), options, now=NOW)
    counts = one_env.table[0]
    assert counts.train == (counts.train + counts.excluded) // 5
    assert [f.env_key for f in one_env.findings if f.code == "capped"] == ["booking"]
    some = (tasks({"booking": 25}, start=start) for start in range(0, 600, 25))
    sizes = {prepare(rows, options, now=NOW).table[0].eval for rows in some}
    assert len(sizes) > 3
