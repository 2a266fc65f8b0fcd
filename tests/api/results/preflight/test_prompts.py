"""What the agents read first: told by the trainer, read over HTTP and on the command line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from hillclimb.blobs.disk import DiskStore
from hillclimb.cli.commands import main
from hillclimb.protocol import events
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.environments import PromptText
from hillclimb.protocol.rundir import prompts_file, run_key
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story, spec

TEXT = "<|im_start|>system\nYou are [an] agent.<|im_end|>\n<|im_start|>assistant\n"


def spread(most: int) -> dict[str, float]:
    return {"min": most - 2, "median": most - 1, "max": most}


def rendered(
    story: Story, run_id: str, *, version: str = "1", num_tasks: int = 100, **digests: str
) -> events.PromptsRendered:
    tokens = {
        f"{part}_tokens": spread(most)
        for part, most in [("system", 40), ("tools", 300), ("task", 60), ("total", 420)]
    }
    environments = {
        env_key: {
            "digest": digest * 64,
            "num_tasks": num_tasks,
            "num_tools": 7,
            "num_counted": 64,
            "num_too_long": 3 if env_key == "github" else 0,
            "longest_task": f"{env_key}-1",
            **tokens,
        }
        for env_key, digest in digests.items()
    }
    return events.PromptsRendered.model_validate(
        {
            **story.place(run_id, 0),
            "version": version,
            "max_input_length": 400,
            "environments": environments,
            "file": prompts_file(story.plans[run_id].attempt),
        }
    )


def kept(blobs: DiskStore, run_id: str, *env_keys: str) -> None:
    """Put the prompts that the event names."""
    texts = [
        PromptText(
            env_key=env_key,
            task_key=f"{env_key}-1",
            system="You are [an] agent.",
            task="Do it.",
            text=TEXT,
            system_tokens=39,
            tools_tokens=299,
            task_tokens=59,
            total_tokens=420,
            is_too_long=True,
        )
        for env_key in env_keys
    ]
    lines = "".join(f"{text.model_dump_json()}\n" for text in texts)
    blobs.put(run_key(run_id, prompts_file(1)), gzip.compress(lines.encode()))


def warnings_of(served: Served, run_id: str) -> list[dict[str, Any]]:
    with served.client() as client:
        told = client.get(f"/v1/runs/{run_id}/events", params={"limit": 200}).json()["data"]
    return [event["data"] for event in told if event["type"] == "run.warning"]


def test_prompts_are_read_over_http_with_their_tokens(
    story: Story, served: Served, blobs: DiskStore
) -> None:
    run_id = story.running()
    path = f"/v1/runs/{run_id}/prompts"
    with served.client() as client:
        early = client.get(path)
        story.push(run_id, rendered(story, run_id, booking="a", github="b"))
        unstored = client.get(path)
        kept(blobs, run_id, "booking", "github")
        found = client.get(path).json()
        one = client.get(path, params={"env": "github"}).json()
        none = client.get(path, params={"task": "booking-2"}).json()
        unknown = client.get(path, params={"tsk": "x"})
    assert (early.status_code, early.json()["code"]) == (404, "artifact_not_found")
    assert "reported no prompts yet" in early.json()["detail"]
    assert unstored.status_code == 404
    assert (found["version"], found["attempt"], found["max_input_length"]) == ("1", 1, 400)
    assert found["environments"]["github"]["total_tokens"] == spread(420)
    assert [text["text"] for text in found["texts"]] == [TEXT, TEXT]
    assert [text["env_key"] for text in one["texts"]] == ["github"]
    assert none["texts"] == []
    assert unknown.status_code == 422


def test_prompts_that_changed_under_a_run_are_warned_of(story: Story, served: Served) -> None:
    run_id = story.running()
    story.push(run_id, rendered(story, run_id, booking="a", github="b"))
    assert warnings_of(served, run_id) == []
    story.report(run_id, ReasonCode.TRAINER_CRASHED)
    story.launch(run_id)
    story.push(run_id, story.started(run_id))
    story.push(run_id, rendered(story, run_id, version="2", booking="a", github="c"))
    (warning,) = warnings_of(served, run_id)
    assert warning["code"] == "prompts_changed"
    assert warning["message"].startswith(
        "the prompts of github are not those of an earlier attempt (wording 1 then, 2 now)"
    )


def test_an_environment_is_compared_with_the_newest_attempt_that_knew_it(
    story: Story, served: Served
) -> None:
    run_id = story.running()
    story.push(run_id, rendered(story, run_id, booking="a", github="b"))
    for digests in ({"booking": "a"}, {"booking": "a", "github": "c"}):
        story.report(run_id, ReasonCode.RUNNER_STOPPED)
        story.launch(run_id)
        story.push(run_id, story.started(run_id))
        story.push(run_id, rendered(story, run_id, **digests))
    (warning,) = warnings_of(served, run_id)
    assert warning["message"].startswith("the prompts of github are not those of an earlier")


def test_a_probe_of_some_of_the_parents_tasks_is_not_taken_for_other_prompts(
    story: Story, served: Served
) -> None:
    parent = story.running()
    story.push(parent, rendered(story, parent, booking="a"), story.checkpoint(parent, 10))
    story.finish(parent, 10)
    source = {"resumed_from": {"run_id": parent, "step": 10, "attempt": 1}}
    told = spec().model_dump(mode="json") | {"lineage": source, "kind": "probe"}
    probe = story.running(type(spec()).model_validate(told))
    story.push(probe, rendered(story, probe, num_tasks=40, booking="b"))
    assert warnings_of(served, probe) == []


def test_prompts_that_are_not_those_of_the_parent_are_warned_of(
    story: Story, served: Served
) -> None:
    parent = story.running()
    story.push(parent, rendered(story, parent, booking="a"), story.checkpoint(parent, 10))
    story.finish(parent, 10)
    source = {"resumed_from": {"run_id": parent, "step": 10, "attempt": 1}}
    lineage = source | {"data_order": "restart"}
    told = spec().model_dump(mode="json") | {"lineage": lineage}
    for data, number in ({}, 1), ({"seed": 5}, 0):
        child = story.running(type(spec()).model_validate(told | {"data": told["data"] | data}))
        story.push(child, rendered(story, child, booking="b"))
        found = warnings_of(served, child)
        assert len(found) == number
        assert all(f"are not those of {parent}:" in each["message"] for each in found)


def test_the_command_line_shows_tokens_and_the_prompt_as_the_model_reads_it(
    story: Story, served: Served, blobs: DiskStore
) -> None:
    run_id = story.running()
    story.push(run_id, rendered(story, run_id, booking="a", github="b"))
    kept(blobs, run_id, "booking", "github")
    environment = {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}

    def hc(*arguments: str) -> Any:
        return CliRunner(mix_stderr=False).invoke(main, arguments, env=environment)

    shown = hc("prompts", run_id)
    assert shown.exit_code == 0, shown.stderr
    assert "419 (420)" in shown.stdout
    assert "3 of 64" in shown.stdout
    assert TEXT not in shown.stdout
    whole = hc("prompts", run_id, "--task", "github-1")
    assert TEXT in whole.stdout
    assert "github-1: 420 tokens (system 39, tools 299, task 59), 20 beyond the limit" in (
        whole.stdout
    )
    assert whole.stdout.count("<|im_start|>system") == 1
    assert json.loads(hc("prompts", run_id, "--json").stdout)["run_id"] == run_id
    missing = hc("prompts", run_id, "--task", "github-9")
    assert missing.exit_code != 0
    assert "hillclimb preview SPEC --task github-9" in missing.stderr


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b"{", mtime=0)])
def test_a_damaged_file_is_said_to_be_damaged(
    story: Story, served: Served, blobs: DiskStore, content: bytes, tmp_path: Path
) -> None:
    run_id = story.running()
    story.push(run_id, rendered(story, run_id, booking="a"))
    blobs.put(run_key(run_id, prompts_file(1)), content)
    with served.client() as client:
        answer = client.get(f"/v1/runs/{run_id}/prompts")
    assert answer.status_code == 404
    assert "damaged" in answer.json()["detail"]
