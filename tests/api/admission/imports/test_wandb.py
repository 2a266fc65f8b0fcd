"""A W&B history becomes metrics of a run that ended, and no verdict is made of its rates."""

from __future__ import annotations

import gzip
import json
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from api.tables import Eval, OutcomeRecord, Run
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story


def line(step: object, **metrics: object) -> bytes:
    named = {name.replace("__", "/"): value for name, value in metrics.items()}
    return json.dumps({"step": step, "metrics": named}).encode() + b"\n"


HISTORY = (
    line(0, eval__github__pass_at_3=0.5, eval__all__pass_at_3=0.4)
    + line(1, reward__avg_raw_reward=0.1, reward__github__variance_per_prompt=0.2)
    + line(1, loss_metrics__clip_ratio=0.02)
    + line(2, reward__avg_raw_reward=0.3)
    + line(2, eval_sampled__booking__pass_at_1=0.7)
    + line(2, eval__github__pass_at_3=0.6)
)


def bring(served: Served, content: bytes = HISTORY, **options: object) -> httpx.Response:
    params = {"source": "old-run"} | {name: str(value) for name, value in options.items()}
    with served.client() as client:
        return client.post("/v1/imports/wandb", params=params, content=content)


@pytest.fixture
def run_id(served: Served) -> str:
    response = bring(served)
    assert response.status_code == 201, response.text
    return str(response.json()["id"])


def series(served: Served, run_id: str) -> dict[tuple[str, str], list[tuple[int, float]]]:
    with served.client() as client:
        data = client.get(f"/v1/runs/{run_id}/metrics").json()["data"]
    return {
        (each["name"], each["decoding"]): [(p["step"], p["value"]) for p in each["points"]]
        for each in data
    }


def test_the_curves_are_there_under_our_names(served: Served, run_id: str) -> None:
    assert series(served, run_id) == {
        ("eval/github/pass_at_3", "greedy"): [(0, 0.5), (2, 0.6)],
        ("eval/all/pass_at_3", "greedy"): [(0, 0.4)],
        ("eval/booking/pass_at_1", "sampled"): [(2, 0.7)],
        ("reward/avg_raw_reward", "train"): [(1, 0.1), (2, 0.3)],
        ("reward/github/variance_per_prompt", "train"): [(1, 0.2)],
        ("policy/ppo_clip_ratio", "train"): [(1, 0.02)],
    }


def test_old_names_become_those_of_today_and_aliases_are_not_a_second_evaluation(
    served: Served,
) -> None:
    """A run of this service has such names twice in W&B (docs/sinks.md)."""
    content = line(1, time__total=4.0, rollout__github__turns=2.0)
    content += line(1, timing__step=4.0, eval_sampled__all__pass_at_1=0.5, eval__all__pass_at_1=0.5)
    run_id = bring(served, content + line(2, eval__num_samples=30)).json()["id"]
    assert series(served, run_id) == {
        ("timing/step", "train"): [(1, 4.0)],
        ("environment/github/avg_turns", "train"): [(1, 2.0)],
        ("eval/all/pass_at_1", "sampled"): [(1, 0.5)],
        ("eval/all/environment/total_episodes", "greedy"): [(2, 30.0)],
    }


def test_the_run_has_ended_and_names_its_environments(served: Served, run_id: str) -> None:
    with served.client() as client:
        run = client.get(f"/v1/runs/{run_id}").json()
    assert (run["status"], run["progress"]["step"]) == ("succeeded", 2)
    assert run["origin"]["kind"] == "wandb"
    assert run["spec"]["data"]["env_keys"] == ["booking", "github"]


def test_there_is_no_evaluation_and_no_outcome(story: Story, run_id: str) -> None:
    with story.database.transaction() as session:
        for table in (Eval, OutcomeRecord):
            assert session.scalar(select(func.count()).select_from(table)) == 0


@pytest.mark.parametrize(
    "path",
    ["runs/RUN/evals/report", "runs/RUN/patterns", "compare?a=RUN&b=RUN", "runs/RUN/exports/skyrl"],
)
def test_verdicts_say_that_there_are_no_outcomes(served: Served, run_id: str, path: str) -> None:
    with served.client() as client:
        response = client.get(f"/v1/{path.replace('RUN', run_id)}")
    assert (response.status_code, response.json()["code"]) == (404, "no_such_eval")
    assert "no outcomes" in response.json()["detail"]


def test_the_page_of_the_run_can_be_read(served: Served, run_id: str) -> None:
    with served.client() as client:
        for path in ("evals", "signal", "events", "trajectories", "checkpoints", "logs"):
            assert client.get(f"/v1/runs/{run_id}/{path}").status_code == 200, path
        assert client.get(f"/v1/runs/{run_id}/compute").json()["is_complete"] is False


def test_gzip_and_plain_are_the_same_import(served: Served, run_id: str) -> None:
    response = bring(served, gzip.compress(HISTORY))
    assert (response.status_code, response.json()["id"]) == (200, run_id)
    assert bring(served, decoding="sampled").status_code == 201


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "Line 1 is no JSON"),
        (line(1, a=1) + b"[]\n", "Line 2 must have"),
        (line(-1, a=1), "Line 1 must have"),
        (line("1", a=1), "Line 1 must have"),
        (line(10**9, a=1), "Line 1 must have"),
        (line(1, a="x"), "Line 1 must have"),
        (line(1, a=True), "Line 1 must have"),
        (line(1, **{"x" * 400: 1}), "Line 1 must have"),
        (line(1, **{"\ud800": 1}), "Line 1 must have"),
        (line(1, **{"\x00": 1}), "Line 1 must have"),
        (line(1, a=float("inf")), "Line 1 must have"),
        (line(1), "no metric"),
        (b"[" * 100_000, "Line 1"),
        (b"x" * (2 << 20), "at most 1,048,576 bytes"),
        (gzip.compress(b"x" * (50 << 20)), "at most 1,048,576 bytes"),
        (gzip.compress(HISTORY)[:-20], "damaged, or was cut off"),
    ],
    ids=range(16),
)
def test_what_is_no_history_is_refused(
    served: Served, story: Story, content: bytes, words: str
) -> None:
    response = bring(served, content)
    assert response.status_code == 422, response.text
    assert response.json()["code"] == "invalid_import"
    assert words in response.json()["detail"]
    with story.database.transaction() as session:
        assert session.scalar(select(func.count()).select_from(Run)) == 0


@pytest.mark.parametrize(
    "options", [{"decoding": "train"}, {"source": "../x"}, {"model": "a b"}, {"temperature": "nan"}]
)
def test_bad_options_are_refused(served: Served, options: dict[str, Any]) -> None:
    assert bring(served, **options).status_code == 422


def test_a_nan_is_left_out(served: Served) -> None:
    run_id = bring(served, line(1, a=float("nan"), b=1)).json()["id"]
    assert series(served, run_id) == {("b", "train"): [(1, 1.0)]}
