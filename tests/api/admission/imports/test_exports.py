"""What was imported comes out again byte for byte; a run of ours comes out in SkyRL's layout."""

from __future__ import annotations

import gzip
import io
import json
from typing import Any
from zipfile import ZipFile

import pytest

from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.outcomes import OutcomeStatus
from hillclimb.protocol.rundir import run_key
from hillclimb.stats.trajectories.skyrl.metrics import Reward, eval_metrics, format_metrics
from tests.api.admission.imports.conftest import Import
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec
from tests.fixtures.skyrl import RUN_NAME, STEPS, files, row, rows, zipped


def exported(served: Served, run_id: str, **params: object) -> dict[str, bytes]:
    with served.client() as client:
        response = client.get(
            f"/v1/runs/{run_id}/exports/skyrl",
            params={name: str(value) for name, value in params.items()},
        )
    assert response.status_code == 200, response.text
    with ZipFile(io.BytesIO(response.content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_every_file_of_the_dump_comes_out_byte_for_byte(served: Served, imported: str) -> None:
    with served.client() as client:  # analysed in between
        assert client.get(f"/v1/runs/{imported}/evals/report").status_code == 200
    content = exported(served, imported)
    assert content == {f"evals/{RUN_NAME}/{name}": data for name, data in files().items()}


@pytest.mark.parametrize("step", STEPS)
def test_metrics_computed_from_the_rows_are_those_that_skyrl_computed(
    served: Served, bring: Import, step: int
) -> None:
    name = f"global_step_{step}/aggregated_results.jsonl"
    rest = {path: data for path, data in files().items() if path != name}
    run_id = bring(zipped(rest)).json()["id"]
    content = exported(served, run_id, step=step)
    assert content[f"evals/{RUN_NAME}/{name}"] == files()[name]


def test_numbers_and_escapes_keep_their_spelling(served: Served, bring: Import) -> None:
    line = row(output_response="é\u0000 <done>").replace(b"[0.0, 1.0]", b"[0, 1e0, 0.00]")
    path = "global_step_3/github.jsonl"
    run_id = bring(zipped({path: line + line.rstrip(b"\n")})).json()["id"]
    assert exported(served, run_id)[f"evals/{RUN_NAME}/{path}"] == line + line


def own_run(story: Story, blobs: DiskStore) -> str:
    """A run of ours whose first task passes and whose second fails; a third has no grade."""
    run_id = story.running(spec("own run", env_keys=("github",)))
    made = story.evaluation(run_id, 40, {"github": 1 / 3}, tasks=3)
    outcomes = [
        each.model_copy(update={"trajectory": "trajectories/e.jsonl.gz", "trajectory_line": line})
        for line, each in enumerate(made.outcomes)
    ]
    outcomes[2] = outcomes[2].model_copy(
        update={"status": OutcomeStatus.INFRA_ERROR, "score": None, "reason": "connect_timeout"}
    )
    story.push(run_id, made.model_copy(update={"outcomes": tuple(outcomes)}))
    lines = "".join(json.dumps(stored(each.task_key, each.score)) + "\n" for each in outcomes)
    key = run_key(run_id, "attempt-1", "trajectories/e.jsonl.gz")
    blobs.put(key, gzip.compress(lines.encode()))
    return run_id


def stored(task_key: str, score: float | None) -> dict[str, Any]:
    call = {"name": "list_issues", "arguments": {"repo": "zade"}}
    turns = [
        {
            "response": f"<tool_call>\n{json.dumps(call)}\n</tool_call>",
            "tool_name": "list_issues",
            "tool_arguments": {"repo": "zade"},
            "observation": "[]",
            "is_error": False,
            "call_index": 0,
        },
        {
            "response": "All done. <done>",
            "tool_name": None,
            "tool_arguments": None,
            "observation": None,
            "is_error": False,
            "call_index": 0,
        },
    ]
    return {
        "task": {"key": task_key, "env_key": "github", "prompt": "Do it.", "env_variables": {}},
        "stop_reason": "done",
        "outcome": {"status": "graded" if score is not None else "infra_error", "score": score},
        "turns": turns,
        "prompt_length": 4,
        "token_ids": list(range(10)),
        "action_mask": [],
        "logprobs": [],
        "weight_versions": [],
    }


def test_a_run_of_ours_has_exactly_skyrls_keys(
    served: Served, story: Story, blobs: DiskStore
) -> None:
    run_id = own_run(story, blobs)
    content = exported(served, run_id)
    folder = f"evals/own_run_{run_id[-8:]}/global_step_40"
    assert set(content) == {f"{folder}/github.jsonl", f"{folder}/aggregated_results.jsonl"}
    made = [json.loads(line) for line in content[f"{folder}/github.jsonl"].splitlines()]
    original = rows("global_step_0/github.jsonl")[0]
    assert list(made[0]) == list(original)
    assert list(made[0]["env_extras"]) == list(original["env_extras"])
    assert [each["score"] for each in made] == [[0.0] * 5 + [1.0], [0.0] * 6]
    rewards = [
        Reward(env_key="github", task_key=each["env_extras"]["task_key"], value=sum(each["score"]))
        for each in made
    ]
    expected = format_metrics(eval_metrics(rewards, num_samples=1)).encode()
    assert content[f"{folder}/aggregated_results.jsonl"] == expected
    assert b'"eval/github/pass_at_1": 0.5' in expected
    with served.client() as client:
        response = client.get(f"/v1/runs/{run_id}/exports/skyrl")
    assert response.headers["x-left-out"] == "1"


def test_an_exported_run_of_ours_can_be_imported(
    served: Served, story: Story, blobs: DiskStore, bring: Import
) -> None:
    content = exported(served, own_run(story, blobs))
    below = {name.split("/", 2)[2]: data for name, data in content.items()}
    run_id = bring(zipped(below), source="again").json()["id"]
    with served.client() as client:
        page = client.get(f"/v1/runs/{run_id}/trajectories").json()["data"]
        full = client.get(f"/v1/runs/{run_id}/trajectories/{page[0]['rollout_id']}").json()
    assert sorted(each["score"] for each in page) == [0.0, 1.0]
    turns = full["trajectory"]["turns"]
    assert [each["tool_name"] for each in turns] == ["list_issues", None]
    assert (turns[0]["observation"], full["stop_reason"]) == ("[]", "done")
    assert exported(served, run_id) == {f"evals/again/{name}": data for name, data in below.items()}


def test_rollouts_are_downloaded_by_environment_and_step(served: Served, imported: str) -> None:
    path = f"/v1/runs/{imported}/exports/rollouts"
    with served.client() as client:
        response = client.get(path, params={"env": "outlook", "step": "80"})
        everything = client.get(path)
    lines = [json.loads(line) for line in gzip.decompress(response.content).splitlines()]
    assert len(lines) == 24
    assert {(each["outcome"]["env_key"], each["outcome"]["step"]) for each in lines} == {
        ("outlook", 80)
    }
    for number, each in enumerate(lines):
        assert each["outcome"]["trajectory_line"] == number
        assert each["trajectory"]["task"]["key"] == each["outcome"]["task_key"]
    assert len(gzip.decompress(everything.content).splitlines()) == 192


def test_a_lost_or_damaged_file_is_a_null(
    served: Served, story: Story, blobs: DiskStore, imported: str
) -> None:
    lost, damaged = (
        run_key(imported, f"attempt-1/trajectories/step-000000-eval-greedy-{env}.jsonl.gz")
        for env in ("github", "booking")
    )
    blobs.delete_prefix(lost)
    blobs.put(damaged, blobs.get(damaged)[:2000])
    with served.client() as client:
        response = client.get(f"/v1/runs/{imported}/exports/rollouts", params={"step": "0"})
    lines = [json.loads(line) for line in gzip.decompress(response.content).splitlines()]
    nulls = {each["outcome"]["env_key"] for each in lines if each["trajectory"] is None}
    assert (len(lines), nulls) == (96, {"github", "booking"})
    assert f"evals/{RUN_NAME}/global_step_0/outlook.jsonl" in exported(served, imported)


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("rollouts", {"env": "nowhere"}, 404),
        ("rollouts", {"splits": "eval"}, 422),
        ("rollouts", {"step": "-1"}, 422),
        ("skyrl", {"decoding": "sampled"}, 404),
        ("skyrl", {"step": "7"}, 404),
    ],
)
def test_nothing_to_export_is_said(
    served: Served, imported: str, path: str, params: dict[str, str], status: int
) -> None:
    with served.client() as client:
        response = client.get(f"/v1/runs/{imported}/exports/{path}", params=params)
    assert response.status_code == status, response.text
    with served.client(served.stranger_key) as client:
        assert client.get(f"/v1/runs/{imported}/exports/{path}").status_code == 404
