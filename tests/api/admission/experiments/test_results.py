"""Results of experiments: arms with seeds, readings of thresholds, verdicts."""

from __future__ import annotations

import pytest

from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.admission.experiments.conftest import (
    BASE,
    Call,
    Json,
    fail,
    submit,
    train,
)
from tests.api.fixtures.story import Story

GRID: Json = {
    "base": BASE,
    "over": [{"key": "optimizer.lr", "values": [1e-4, 5e-4]}],
    "seeds": [0, 1, 2],
}


def swept(call: Call) -> list[str]:
    return [each["run_id"] for each in call("POST", "/v0.2.4/sweep", GRID)["runs"]]


def test_a_gain_in_every_seed_confirms(create: Call, call: Call, story: Story) -> None:
    create()
    runs = swept(call)
    for run_id in runs[:3]:
        train(story, run_id, 0.3, 0.3)
    for run_id, rate in zip(runs[3:], (0.6, 0.65, 0.7), strict=True):
        train(story, run_id, 0.3, rate)
    results = call("GET", "/v0.2.4/results")
    assert results["word"] == "confirmed"
    assert results["rule"] == "experiment-v1"
    assert results["decoding"] == "sampled"
    assert results["is_complete"]
    base, faster = results["arms"]
    assert (base["role"], faster["role"]) == ("baseline", "variant")
    rate = faster["last"]["all"]
    assert (rate["num_runs"], rate["num_tasks"]) == (3, 80)
    assert rate["value"] == pytest.approx(0.65)
    assert (rate["least"], rate["most"]) == (pytest.approx(0.6), pytest.approx(0.7))
    assert rate["sd"] == pytest.approx(0.05)
    change = faster["against_baseline"]
    assert change["all"]["value"] == pytest.approx(0.35)
    assert change["all"]["covers_seeds"]
    assert change["all"]["low"] > 0.2
    assert change["all"]["paired"]["verdict"] == "improved"
    assert {each["paired"]["verdict"] for each in change["envs"].values()} == {"improved"}
    assert base["against_baseline"] is None
    assert base["own_change"]["all"]["value"] == 0.0
    assert [each["pointer"] for each in faster["config_diff"]] == ["/optimizer/lr"]
    (verdict,) = results["verdicts"]
    (reading,) = verdict["readings"]
    assert (verdict["arm"], reading["reading"]) == ("lr=0.0005", "met")
    assert reading["sentence"] in results["why"]


def test_seeds_that_disagree_leave_it_inconclusive_though_the_pooled_test_is_sure(
    create: Call, call: Call, story: Story
) -> None:
    """On average 13 points more, from one lucky seed."""
    create()
    runs = swept(call)
    for run_id in runs[:3]:
        train(story, run_id, 0.3, 0.3)
    for run_id, rate in zip(runs[3:], (0.3, 0.3, 0.7), strict=True):
        train(story, run_id, 0.3, rate)
    results = call("GET", "/v0.2.4/results")
    assert results["word"] == "inconclusive"
    (reading,) = results["verdicts"][0]["readings"]
    assert reading["paired_verdict"] == "improved"
    assert "contains no change" in reading["why"]


def test_a_loss_refutes(create: Call, call: Call, story: Story) -> None:
    create()
    for number, run_id in enumerate(swept(call)):
        train(story, run_id, 0.5, 0.5 if number < 3 else 0.2)
    results = call("GET", "/v0.2.4/results")
    assert results["word"] == "refuted"
    assert results["arms"][1]["against_baseline"]["all"]["paired"]["verdict"] == "regressed"


def test_nothing_is_decided_before_every_run_has_ended(
    create: Call, call: Call, story: Story
) -> None:
    create()
    runs = swept(call)
    for number, run_id in enumerate(runs):
        train(story, run_id, 0.3, 0.3 if number < 3 else 0.9, ends=number != 5)
    results = call("GET", "/v0.2.4/results")
    assert (results["word"], results["is_complete"]) == ("inconclusive", False)
    assert "1 of 3 runs of 'lr=0.0005' has not ended" in results["why"]
    story.finish(runs[5], 4)
    assert call("GET", "/v0.2.4/results")["word"] == "confirmed"


def test_a_run_that_failed_counts_as_ended_and_in_no_figure(
    create: Call, call: Call, story: Story
) -> None:
    create()
    runs = swept(call)
    for number, run_id in enumerate(runs[:5]):
        train(story, run_id, 0.3, 0.3 if number < 3 else 0.9)
    fail(story, runs[5], ReasonCode.CHECKPOINT_UNREADABLE)
    results = call("GET", "/v0.2.4/results")
    faster = results["arms"][1]
    assert (faster["last"]["all"]["num_runs"], results["is_complete"]) == (2, True)
    assert [each["status"] for each in faster["runs"]] == ["succeeded", "succeeded", "failed"]
    assert faster["runs"][2]["pass_at_1"] is None


def test_a_run_without_baseline_is_compared_with_its_own_first_evaluation(
    create: Call, call: Call, story: Story
) -> None:
    create(watch=["eval/all/pass_at_1 >= +0.05", "eval/booking/pass_at_1 > 0.5"])
    run_id = submit(story, "alone")
    train(story, run_id, 0.2, 0.8)
    call("POST", "/v0.2.4/runs", {"run_id": run_id})
    results = call("GET", "/v0.2.4/results")
    assert results["word"] == "confirmed"
    (arm,) = results["arms"]
    assert (arm["own_change"]["before_step"], arm["own_change"]["after_step"]) == (0, 4)
    assert arm["own_change"]["all"]["covers_seeds"] is False
    assert arm["against_baseline"] is None


def test_stored_series_are_read_over_the_steps_of_each_run(
    create: Call, call: Call, story: Story
) -> None:
    create(
        watch=[
            "signal_ratio > 0.25",
            "min(signal_ratio) > 0.45",
            "signal_ratio > +0.1",
            "policy/nowhere > 0",
        ]
    )
    for number, run_id in enumerate(swept(call)):
        value = 0.2 if number < 3 else 0.5 + number / 100
        train(story, run_id, 0.3, 0.4, metrics={"reward/signal_ratio": value})
    readings = call("GET", "/v0.2.4/results")["verdicts"][0]["readings"]
    assert [each["reading"] for each in readings] == ["met", "met", "met", "undecided"]
    assert readings[0]["value"] == pytest.approx(0.54)
    assert readings[2]["value"] == pytest.approx(0.34)
    assert "no run of the arm has stored it" in readings[3]["why"]


def test_the_data_of_the_figures_has_every_step_window_and_size(
    create: Call, call: Call, story: Story
) -> None:
    create()
    for number, run_id in enumerate(swept(call)):
        train(story, run_id, 0.2, 0.4 if number < 3 else 0.8)
    figures = call("GET", "/v0.2.4/figures")
    base, faster = figures["arms"]
    assert [(p["step"], p["num_runs"]) for p in faster["curve"]] == [(0, 3), (2, 3), (4, 3)]
    assert [p["value"] for p in faster["curve"]] == pytest.approx([0.2, 0.5, 0.8])
    assert all(p["low"] < p["value"] < p["high"] for p in faster["curve"])
    assert set(faster["env_curves"]) == set(faster["signal"]) == {"booking", "github"}
    windows = faster["signal"]["booking"]
    assert [(w["first_step"], w["last_step"]) for w in windows] == [(n, n) for n in range(1, 5)]
    assert {w["num_groups"] for w in windows} == {12}
    assert base["num_train_tasks"] == 400


def test_an_unknown_decoding_has_no_figures(create: Call, call: Call, story: Story) -> None:
    create()
    for run_id in swept(call)[:1]:
        train(story, run_id, 0.2, 0.4)
    results = call("GET", "/v0.2.4/results?decoding=nowhere")
    assert (results["decoding"], results["arms"][0]["last"]) == ("nowhere", None)
    assert call("GET", "/v0.2.4/figures?decoding=nowhere")["arms"][0]["curve"] == []


def test_each_summary_of_a_series_and_each_reason_without_one(
    create: Call, call: Call, story: Story
) -> None:
    """A run alone: its series rise from 0.2 to 0.8 (two evaluations, four steps)."""
    create(
        watch=[
            "max(signal_ratio) < 0.6",
            "last(signal_ratio) > 0.4",
            "mean(signal_ratio) > 0.4",
            "signal_ratio > +0.1",
            "eval/held_out_templates/pass_at_1 > 0.1",
            "eval/seen_templates/pass_at_1 > 0.1",
            "eval/all/pass_at_1[nowhere] > +0",
        ]
    )
    run_id = submit(story, "alone")
    train(story, run_id, 0.2, 0.8, metrics={"reward/signal_ratio": 0.5})
    call("POST", "/v0.2.4/runs", {"run_id": run_id})
    readings = call("GET", "/v0.2.4/results")["verdicts"][0]["readings"]
    assert [each["reading"] for each in readings[:4]] == ["met", "met", "met", "undecided"]
    assert {each["value"] for each in readings[:3]} == {0.5}
    assert "a change of a series needs a baseline" in readings[3]["why"]
    assert "there is no baseline, and no earlier evaluation" in readings[6]["why"]


def test_an_experiment_without_a_run_says_so(create: Call, call: Call) -> None:
    create()
    results = call("GET", "/v0.2.4/results")
    assert (results["word"], results["verdicts"]) == ("inconclusive", [])
    assert "has no run" in results["why"]
