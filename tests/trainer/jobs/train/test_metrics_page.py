"""`docs/metrics.md` and the metrics of real runs are the same names, in both directions."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hillclimb.protocol.events import EvalCompleted, StepCompleted
from tests.fixtures.factories import outcome
from tests.trainer.envs.fleet_server import API_KEY, fleet_server_thread
from tests.trainer.fixtures.scripted import ADD, DONE
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.rollouts.test_episode import roll
from trainer.envs.choose import choose_provider
from trainer.jobs.train.metrics import eval_metrics, rollout_metrics
from trainer.jobs.train.reporting import engine_metrics
from trainer.learners.update.summary import speed_metrics
from trainer.rollouts.records.operations import latency_metrics
from trainer.workers.ray.restarts import IDLE

PAGE = Path(__file__).resolve().parents[4] / "docs" / "metrics.md"
A_GPU, A_KNOWN_GPU = "a GPU", "a GPU whose peak is known"
A_SMALL_CACHE = "a cache without room for all rollouts at full length"
ENVS, K = ("booking", "github"), 2
SAMPLED = {"name": "sampled", "temperature": 1.0, "n_samples_per_prompt": K}

Sections = Mapping[str, dict[str, Any]]

MANY: Sections = {
    "algorithm": {
        "use_kl_loss": True,
        "policy_loss_type": "dual_clip",
        "apply_overlong_filtering": True,
        "dynamic_sampling": {"type": "replace", "min_replace_ratio": 0.1},
        "off_policy_correction": {
            "tis_ratio_type": "token",
            "sequence_mask_metric": "geometric",
        },
    },
    "data": {"curriculum": {"interval": 1}},
}
OTHERS: Sections = {
    "algorithm": {
        "off_policy_correction": {"tis_ratio_type": "sequence", "sequence_mask_metric": "product"}
    }
}
FLEET: Sections = {
    "environment": {"provider": "fleet", "max_turns": 1},
    "rollout": {"max_input_length": 3900, "max_generate_length": 8, "max_sequence_length": 4000},
    "schedule": {"total_steps": 1, "train_batch_size": 2, "mini_batch_size": 1},
}
EXPERTS: Sections = {"learner": {"routing_replay": True}}
ONLY_WITH: Mapping[str, Sections] = {
    "`environment.provider: fleet`": FLEET,
    "`algorithm.use_kl_loss`": MANY,
    "`algorithm.policy_loss_type: dual_clip`": MANY,
    "`algorithm.apply_overlong_filtering`": MANY,
    "`algorithm.dynamic_sampling`": MANY,
    "`dynamic_sampling.type: replace`": MANY,
    "`tis_ratio_type: token`": MANY,
    "`sequence_mask_metric: geometric`": MANY,
    "`data.curriculum`": MANY,
    "`tis_ratio_type`": OTHERS,
    "`tis_ratio_type: sequence`": OTHERS,
    "`sequence_mask_metric: product`": OTHERS,
    "a model with experts": EXPERTS,
    "`learner.routing_replay`": EXPERTS,
}
"""A run for every condition that the page names; "a GPU" has a test of its own."""


def rows() -> list[list[str]]:
    """The cells of every table row of the page."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def shorthands() -> dict[str, list[str]]:
    return {row[0].strip("`"): re.findall(r"`([^`]+)`", row[1]) for row in rows() if len(row) == 2}


def documented() -> dict[str, str]:
    """Concrete name -> its condition, for the environments and counts of the short runs."""
    values = {"{env}": list(ENVS), "{n}": ["4"], "{k}": ["1", str(K)], "{layer}": ["0", "1"]}
    found: dict[str, str] = {}
    for row in rows():
        if len(row) == 2:
            continue
        assert len(row) == 4, row
        names = [row[0].strip("`")]
        for placeholder, stands_for in (shorthands() | values).items():
            names = list(
                itertools.chain.from_iterable(
                    [name.replace(placeholder, value) for value in stands_for]
                    if placeholder in name
                    else [name]
                    for name in names
                )
            )
        assert not found.keys() & set(names), f"twice on the page: {row[0]}"
        found |= dict.fromkeys(names, row[3])
    return found


def emitted(root: Path, sections: Sections) -> set[str]:
    """Every name that a short run emits; on a platform the spec chooses the environments."""
    # A step reports the time of the evaluation and the save after the one before it.
    everything = {
        "eval": {"interval": 1, "decodings": [SAMPLED]},
        "schedule": {"total_steps": 2},
        "checkpoints": {"interval": 1},
        **sections,
    }
    run = ShortRun(
        root,
        positions=4000 if sections is FLEET else 1600,
        num_experts=4 if sections is EXPERTS else 0,
        **everything,
    )
    asyncio.run(run.train(provider=choose_provider(run.spec) if sections is FLEET else None))
    events = [*run.events(StepCompleted), *run.events(EvalCompleted)]
    return {name for event in events for name in event.metrics}


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    return emitted(tmp_path_factory.mktemp("plain"), {})


def test_the_page_names_exactly_what_a_plain_run_emits(plain: set[str]) -> None:
    names = {name for name, condition in documented().items() if not condition}
    assert sorted(plain - names) == [], "emitted, not in docs/metrics.md"
    assert sorted(names - plain) == [], "in docs/metrics.md, not emitted"


@pytest.fixture
def platform(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A platform of the provider fleet, for the run that asks for it."""
    with fleet_server_thread() as url:
        monkeypatch.setenv("FLEET_BASE_URL", url)
        monkeypatch.setenv("FLEET_API_KEY", API_KEY)
        yield


@pytest.mark.invariant("docs/metrics.md names what a run with these settings emits")
@pytest.mark.usefixtures("platform")
@pytest.mark.parametrize(
    "sections", [MANY, OTHERS, FLEET, EXPERTS], ids=["many", "others", "fleet", "experts"]
)
def test_what_needs_a_setting_is_there_exactly_with_it(
    plain: set[str], tmp_path: Path, sections: Sections
) -> None:
    found, page = emitted(tmp_path, sections), documented()
    assert sorted(found - page.keys()) == [], "emitted, not in docs/metrics.md"
    wanted = {n for n, condition in page.items() if ONLY_WITH.get(condition) is sections}
    assert sorted(wanted - found) == [], "in docs/metrics.md, not emitted"
    assert sorted(wanted & plain) == [], "there without its setting"


def test_every_condition_on_the_page_is_shown() -> None:
    assert set(documented().values()) == {
        *("", A_GPU, A_KNOWN_GPU, A_SMALL_CACHE, "a tool call"),
        *ONLY_WITH,
    }


async def test_a_tool_call_adds_what_the_page_says() -> None:
    """The random model of short runs never makes one."""
    found = []
    for env_key in ENVS:
        rollout, _, _ = await roll(ADD, DONE)
        task = replace(rollout.trajectory.task, env_key=env_key)
        found.append(replace(rollout, trajectory=replace(rollout.trajectory, task=task)))
    wanted = {name for name, condition in documented().items() if condition == "a tool call"}
    called, not_called = (names_of_rows(num_calls) for num_calls in (1, 0))
    assert set(latency_metrics(found)) | (called - not_called) == wanted


def names_of_rows(num_calls: int) -> set[str]:
    """What rollouts with so many tool calls are reported by."""
    rows = [outcome(env, env_key=env, num_tool_calls=num_calls) for env in ENVS]
    step = rollout_metrics([[row] for row in rows], n=1, pass_threshold=1.0)
    return {*step, *eval_metrics(rows, n=1, pass_threshold=1.0)}


def test_a_gpu_adds_what_the_page_says() -> None:
    def names(num_gpus: int, peak_flops: float | None) -> set[str]:
        return set(
            speed_metrics(
                num_tokens=10,
                flops=1.0,
                seconds=1.0,
                update_s=1.0,
                num_gpus=num_gpus,
                peak_flops=peak_flops,
            )
        )

    page = documented().items()
    any_gpu, known = ({n for n, said in page if said == each} for each in (A_GPU, A_KNOWN_GPU))
    assert names(1, None) - names(0, None) == any_gpu
    assert names(1, 1e12) - names(1, None) == known


def test_a_small_cache_adds_what_the_page_says() -> None:
    before, roomy = IDLE, replace(IDLE, busy_s=2.0)
    small = replace(
        roomy, num_cache_tokens=100, reserved_token_s=160.0, num_cache_waits=3, cache_wait_s=4.5
    )
    added = engine_metrics(before, small).items() - engine_metrics(before, roomy).items()
    assert dict(added) == {
        "generate/num_cache_tokens": 100.0,
        "generate/avg_reserved_tokens": 80.0,
        "generate/num_cache_waits": 3.0,
        "generate/cache_wait_s": 4.5,
    }
    page = documented().items()
    assert dict(added).keys() == {name for name, said in page if said == A_SMALL_CACHE}
