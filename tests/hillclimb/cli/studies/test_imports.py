"""`hillclimb import` and `export` against the real application, from and to directories and S3."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.blobs.base import BlobStore
from hillclimb.blobs.disk import DiskStore
from hillclimb.blobs.locate import open_store
from hillclimb.protocol.rundir import checkpoint_name, run_key
from tests.api.fixtures.story import Story
from tests.fixtures.skyrl import RUN_NAME, STEPS, files
from tests.hillclimb.blobs.servers import BUCKET, KEY, REGION, SECRET, serve_rclone
from tests.hillclimb.cli.conftest import Invoke, from_json


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    """The folder of a run, with files beside the dump that are not its own."""
    folder = tmp_path / "evals" / RUN_NAME
    for name, content in files().items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    (folder / "notes.txt").write_text("not a dump")
    (folder / "global_step_0" / "deeper").mkdir()
    return folder


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a bucket, which takes the user's own credentials."""
    root = tmp_path / "buckets"
    (root / BUCKET).mkdir(parents=True)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with serve_rclone(root) as url:
        yield f"s3://{BUCKET}/{{path}}?endpoint_url={url}&region={REGION}"


def test_a_directory_goes_in_and_comes_out_equal(hc: Invoke, dump: Path, tmp_path: Path) -> None:
    run = from_json(hc("import", "skyrl", str(dump), "--json"))
    assert (run["name"], run["origin"]["kind"]) == (RUN_NAME, "skyrl")
    target = tmp_path / "out"
    written = from_json(hc("export", "skyrl", run["id"], str(target), "--json"))["files"]
    assert len(written) == 10
    for name, content in files().items():
        assert (target / "evals" / RUN_NAME / name).read_bytes() == content


def test_an_export_replaces_nothing_unless_told_to(hc: Invoke, dump: Path, tmp_path: Path) -> None:
    run_id = from_json(hc("import", "skyrl", str(dump), "--json"))["id"]
    target = tmp_path / "evals" / RUN_NAME
    (target / "global_step_0" / "github.jsonl").write_bytes(b"mine")
    result = hc("export", "skyrl", run_id, str(tmp_path))
    assert result.exit_code == 2
    assert "is there already" in result.stderr
    assert (target / "global_step_0" / "github.jsonl").read_bytes() == b"mine"
    assert hc("export", "skyrl", run_id, str(tmp_path), "--force").exit_code == 0


def test_a_second_import_prints_the_first_run(hc: Invoke, dump: Path) -> None:
    first, second = (hc("import", "skyrl", str(dump)) for _ in range(2))
    assert first.stdout == second.stdout
    assert "step 0 (greedy), step 80 (greedy)" in first.stdout


def test_steps_and_options_are_chosen(hc: Invoke, dump: Path) -> None:
    options = ("--decoding", "sampled", "--temperature", "0.9", "--name", "old run", "--step", "80")
    run = from_json(hc("import", "skyrl", str(dump), *options, "--json"))
    assert run["name"] == "old_run"
    assert run["spec"]["eval"]["decodings"][0] == {
        "name": "sampled", "temperature": 0.9, "top_p": 1.0, "n_samples_per_prompt": 3,
    }  # fmt: skip
    assert run["progress"]["step"] == 80


def test_a_bucket_goes_in_and_comes_out_equal(hc: Invoke, bucket: str) -> None:
    source = bucket.format(path=f"evals/{RUN_NAME}")
    store = open_store(source)
    for name, content in files().items():
        store.put(name, content)
    run = from_json(hc("import", "skyrl", source, "--json"))
    assert run["name"] == RUN_NAME
    result = hc("export", "skyrl", run["id"], bucket.format(path="copy"))
    assert result.exit_code == 0, result.stderr
    copy = open_store(bucket.format(path=f"copy/evals/{RUN_NAME}"))
    assert {key: copy.get(key) for key in copy.list("")} == files()


@pytest.mark.parametrize("content", [{}, {"global_step_x/github.jsonl": b"{}"}])
def test_a_folder_without_a_dump_is_an_error(
    hc: Invoke, tmp_path: Path, content: dict[str, bytes]
) -> None:
    for name, data in content.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_bytes(data)
    for source in (str(tmp_path), str(tmp_path / "nowhere")):
        result = hc("import", "skyrl", source)
        assert result.exit_code == 2
        assert "no file global_step_N" in result.stderr or "no directory" in result.stderr


def test_a_refused_row_is_named(hc: Invoke, dump: Path) -> None:
    (dump / "global_step_80" / "outlook.jsonl").write_bytes(b'{"score": 1}\n')
    result = hc("import", "skyrl", str(dump))
    assert result.exit_code == 6
    assert "global_step_80/outlook.jsonl line 1" in result.stderr


def test_rollouts_are_downloaded_to_a_file(hc: Invoke, dump: Path, tmp_path: Path) -> None:
    run_id = from_json(hc("import", "skyrl", str(dump), "--json"))["id"]
    file = tmp_path / "github.jsonl.gz"
    options = ("--env", "github", "--step", str(STEPS[1]))
    assert hc("export", "rollouts", run_id, str(file), *options).exit_code == 0
    with gzip.open(file, "rt") as lines:
        assert [json.loads(line)["outcome"]["env_key"] for line in lines] == ["github"] * 24
    result = hc("export", "rollouts", run_id, str(tmp_path / "none.gz"), "--env", "nowhere")
    assert result.exit_code == 7
    assert not list(tmp_path.glob("*none*"))


FILES = {"policy/model.safetensors": b"weights" * 1000, "learner/state.safetensors": b"state"}


def save(story: Story, store: BlobStore) -> str:
    """A run with a checkpoint at step 10; returns its id."""
    run_id = story.running()
    story.push(run_id, story.checkpoint(run_id, 10))
    place = run_key(run_id, checkpoint_name(10, 1))
    for name, content in FILES.items():
        store.put(f"{place}/{name}", content)
    listed = [
        {"path": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in FILES.items()
    ]
    store.put(f"{place}/manifest.json", json.dumps({"files": listed}).encode())
    return run_id


def test_checkpoints_are_written_in_the_teams_tree_with_the_manifest_last(
    hc: Invoke, story: Story, blobs: DiskStore, bucket: str
) -> None:
    run_id = save(story, blobs)
    target = bucket.format(path="checkpoints")
    made = from_json(
        hc("export", "checkpoints", run_id, target, "--project", "fleet-task-grpo", "--json")
    )
    place = f"fleet-task-grpo/tiny-qwen3-a/climb_{run_id[-8:]}"
    assert (made["place"], made["written"]) == (place, [10])
    copy = open_store(target)
    folder = f"{place}/global_step_10"
    assert copy.list(place) == tuple(
        sorted(f"{folder}/{name}" for name in (*FILES, "manifest.json"))
    )
    assert {name: copy.get(f"{folder}/{name}") for name in FILES} == FILES
    assert (
        from_json(
            hc("export", "checkpoints", run_id, target, "--project", "fleet-task-grpo", "--json")
        )["written"]
        == []
    )


def test_a_damaged_file_leaves_no_manifest(
    hc: Invoke, story: Story, blobs: DiskStore, tmp_path: Path
) -> None:
    run_id = save(story, blobs)
    blobs.put(run_key(run_id, checkpoint_name(10, 1), "learner/state.safetensors"), b"other")
    result = hc("export", "checkpoints", run_id, str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "its checksum differs" in result.stderr
    assert not list((tmp_path / "out").rglob("manifest.json"))


def test_a_step_without_a_checkpoint_is_an_error(
    hc: Invoke, story: Story, blobs: DiskStore, tmp_path: Path
) -> None:
    result = hc("export", "checkpoints", save(story, blobs), str(tmp_path), "--step", "11")
    assert result.exit_code == 2
    assert "no checkpoint at step 11" in result.stderr


def test_rollouts_without_a_grade_are_counted(hc: Invoke, story: Story, tmp_path: Path) -> None:
    run_id = story.running()
    rates = {"booking": 0.5}
    story.push(run_id, story.evaluation(run_id, 0, rates, infra_share=0.2))
    story.push(run_id, story.evaluation(run_id, 40, rates, decoding="greedy"))
    rows = from_json(hc("trajectories", run_id, "--step", "0", "--limit", "200", "--json"))["data"]
    number = sum(row["score"] is None for row in rows)
    assert number > 0
    made = from_json(hc("export", "skyrl", run_id, str(tmp_path / "a"), "--json"))
    assert made["num_left_out"] == number
    result = hc("export", "skyrl", run_id, str(tmp_path / "b"))
    assert f"{number} rollouts without a grade have no row" in result.stdout
    other = from_json(
        hc("export", "skyrl", run_id, str(tmp_path / "c"), "--decoding", "greedy", "--json")
    )
    assert other["num_left_out"] == 0
