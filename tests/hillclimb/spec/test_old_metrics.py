"""The table of old metrics says of every name that a dashboard has what became of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hillclimb.spec.monitoring.old_metrics import OLD_METRICS, RENAMED, old_names, present_name

ROOT = Path(__file__).resolve().parents[3]
RECORDED = ROOT / "tests" / "fixtures" / "wandb" / "old_names.txt"


def recorded() -> list[str]:
    """Names that dashboards of the team have."""
    lines = RECORDED.read_text().splitlines()
    return [line for line in lines if not line.startswith("#")]


@pytest.mark.parametrize("name", recorded())
def test_every_recorded_name_has_one_row(name: str) -> None:
    (row,) = [each for each in OLD_METRICS if each.pattern.fullmatch(name)]
    assert row.ours or row.note, "neither a name of today nor a reason"


def test_no_name_is_twice_in_the_table() -> None:
    names = [each.old for each in OLD_METRICS]
    assert len(set(names)) == len(names)


def test_the_way_back_from_an_old_name_is_the_way_there() -> None:
    for each in RENAMED:
        assert each.ours is not None
        old, ours = (text.replace("{env}", "booking") for text in (each.old, each.ours))
        assert present_name(old) == ours
        assert old in list(old_names(ours))
        assert present_name(ours) == ours


@pytest.mark.parametrize(
    ("ours", "old"),
    [
        ("policy/ppo_clip_ratio", ["loss_metrics/clip_ratio"]),
        ("environment/google-maps/avg_turns", ["rollout/google-maps/turns"]),
        ("environment/avg_turns", []),
        ("eval/all/environment/total_episodes", ["eval/num_samples"]),
        ("reward/avg_raw_reward", []),
    ],
)
def test_a_metric_of_today_has_these_old_names(ours: str, old: list[str]) -> None:
    assert list(old_names(ours)) == old


def test_a_name_that_nobody_knows_stays_as_it_is() -> None:
    assert present_name("my/own") == "my/own"
    assert not re.fullmatch(OLD_METRICS[0].pattern, "reward/avg_pass_at_x")
