"""A dashboard that the team has keeps working: W&B has what its names stand for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hillclimb.blobs.disk import DiskStore
from hillclimb.spec.monitoring.old_metrics import OLD_METRICS, present_name
from hillclimb.spec.training.evaluation import EvalSpec
from tests.hillclimb.spec.test_old_metrics import recorded
from tests.trainer.attempt.sinks.test_tracking import WAIT_S
from tests.trainer.attempt.sinks.wandb_file import read_wandb
from tests.trainer.fixtures.short_run import ShortRun
from tests.trainer.jobs.train.test_metrics_page import documented
from trainer.attempt.sinks.tracker_choice import add_trackers
from trainer.attempt.sinks.trackers.old_names import main_decoding
from trainer.attempt.sinks.trackers.plan import TrackingPlan

GREEDY = {"name": "greedy", "temperature": 0.0}
THREE = {"name": "sampled", "temperature": 1.0, "n_samples_per_prompt": 3}
ABSENT_HERE = ("a tool call", "a GPU")
"""Conditions that no run of a random model on a CPU meets."""


async def history(root: Path) -> list[dict[str, Any]]:
    """The rows that W&B has of a short run."""
    run = ShortRun(
        root,
        schedule={"total_steps": 3},
        algorithm={"use_kl_loss": True},
        eval={"interval": 1, "decodings": [GREEDY, THREE]},
        tracking={"wandb": {"mode": "offline"}},
    )
    trainer = run.build()
    plan = TrackingPlan(spec=run.spec, attempt_dir=run.dir(), resume_from=None)
    add_trackers(run.journal, plan, DiskStore(root / "blobs"), {})
    try:
        await trainer.train()
    finally:
        await trainer.close()
        assert run.journal.close(drain_s=WAIT_S)
    return read_wandb(run.dir().path).history


async def test_every_name_of_the_team_is_in_wandb_or_the_table_says_why_not(tmp_path: Path) -> None:
    rows = await history(tmp_path)
    names = {name for row in rows for name in row}
    lost = [each for each in OLD_METRICS if each.ours is None]
    page = documented()
    missing = [
        name
        for name in recorded()
        if name not in names
        and not any(each.pattern.fullmatch(name) and each.note for each in lost)
        and page.get(present_name(name)) not in ABSENT_HERE
    ]
    assert missing == []
    assert not [each.old for each in lost if any(map(each.pattern.fullmatch, names))]
    for row in rows:
        for name in row:
            if name.startswith("eval/") and name != "eval/num_samples":
                assert row[name] == row[name.replace("eval/", "eval_sampled/", 1)]
    last = rows[-1]
    assert last["loss_metrics/clip_ratio"] == last["policy/ppo_clip_ratio"]
    assert last["rollout/booking/turns"] == last["environment/booking/avg_turns"]
    # What the team's script for the training signal reads.
    columns = [
        name for name in names if "variance_per_prompt" in name and name.startswith("reward")
    ]
    assert {name.split("/")[1] for name in columns} == {"booking", "github", "variance_per_prompt"}


def test_every_name_of_today_in_the_table_is_documented() -> None:
    page = documented()
    for each in OLD_METRICS:
        assert each.ours is None or any(map(each.own_pattern.fullmatch, page)), each


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({}, "sampled"),
        ({"decodings": [GREEDY, THREE]}, "sampled"),
        ({"decodings": [GREEDY, THREE], "interval_decodings": ["greedy"]}, "greedy"),
        ({"decodings": [GREEDY, {**THREE, "n_samples_per_prompt": 1}]}, "greedy"),
    ],
)
def test_an_old_evaluation_is_the_decoding_with_the_most_samples(
    spec: dict[str, Any], name: str
) -> None:
    assert main_decoding(EvalSpec.model_validate(spec)) == name
