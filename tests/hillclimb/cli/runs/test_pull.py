"""`hillclimb pull` against the real service and a store that checks signatures."""

import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner

from hillclimb.blobs.base import BlobStore
from hillclimb.blobs.locate import open_store
from hillclimb.cli.commands import main
from hillclimb.cli.terminal.exits import Exit
from hillclimb.protocol.rundir import checkpoint_name, run_key
from tests.api.fixtures.serving import Served, serve
from tests.api.fixtures.story import Story
from tests.hillclimb.blobs.servers import (
    BUCKET,
    KEY,
    REGION,
    SECRET,
    Fault,
    FaultyProxy,
    serve_rclone,
)

WEIGHTS = random.Random(0).randbytes(9 << 20)
ENDPOINT = "s3://{bucket}/p?endpoint_url={url}&region={region}"


@pytest.fixture(scope="module")
def rclone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    root = tmp_path_factory.mktemp("buckets")
    (root / BUCKET).mkdir()
    with serve_rclone(root) as address:
        yield address


@pytest.fixture
def proxy(rclone: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyProxy]:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr("hillclimb.client.stream.download.PAUSE_S", 0.0)
    with FaultyProxy(rclone).serve() as running:
        yield running


FILES = {"policy/model.safetensors": WEIGHTS, "policy/config.json": b"{}"}


def saved(story: Story, store: BlobStore, files: Mapping[str, bytes] = FILES) -> str:
    """A run with a checkpoint of two files; returns its id."""
    run_id = story.running()
    story.push(run_id, story.checkpoint(run_id, 10))
    place = run_key(run_id, checkpoint_name(10, 1))
    for name, content in files.items():
        store.put(f"{place}/{name}", content)
    listed = [
        {"path": name, "size_bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        for name, data in files.items()
    ]
    store.put(f"{place}/manifest.json", json.dumps({"files": listed}).encode())
    return run_id


def test_weights_of_another_checkpoint_are_not_overwritten_without_force(
    story: Story, served: Served, blobs: BlobStore, tmp_path: Path
) -> None:
    run_id = saved(story, blobs)
    directory = tmp_path / "w"
    directory.mkdir()
    (directory / "model.safetensors").write_bytes(b"of another step")
    environment = {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}
    args = ["pull", run_id, str(directory)]
    refused = CliRunner(mix_stderr=False).invoke(main, args, env=environment)
    assert refused.exit_code != 0
    assert "model.safetensors is there with other content" in refused.stderr
    assert (directory / "model.safetensors").read_bytes() == b"of another step"
    assert CliRunner().invoke(main, [*args, "--force"], env=environment).exit_code == 0
    pull(served, run_id, directory)  # once more: nothing to do


@pytest.mark.parametrize("below", ["/proc/x", "file/y", ""])
def test_a_directory_that_cannot_be_written_is_a_sentence(
    story: Story, served: Served, blobs: BlobStore, tmp_path: Path, below: str
) -> None:
    run_id = saved(story, blobs)
    (tmp_path / "file").touch()
    environment = {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}
    target = str(tmp_path / below) if below else ""
    refused = CliRunner(mix_stderr=False).invoke(main, ["pull", run_id, target], env=environment)
    assert isinstance(refused.exception, SystemExit), refused.exception
    assert refused.exit_code in (Exit.ERROR, Exit.USAGE)
    assert (target or "it is empty") in refused.stderr


def pull(served: Served, run_id: str, directory: Path) -> None:
    environment = {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}
    result = CliRunner(mix_stderr=False).invoke(
        main, ["pull", run_id, str(directory)], env=environment, catch_exceptions=False
    )
    assert result.exit_code == 0, result.stderr
    assert (directory / "model.safetensors").read_bytes() == WEIGHTS
    assert sorted(path.name for path in directory.iterdir()) == ["config.json", "model.safetensors"]


def gets_of_weights(proxy: FaultyProxy) -> list[str]:
    return [seen for seen in proxy.seen if seen.startswith("GET") and "model.safe" in seen]


def test_weights_come_straight_from_a_store_that_has_addresses(
    story: Story, story_url: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    url = ENDPOINT.format(bucket=BUCKET, url=proxy.url, region=REGION)
    run_id = saved(story, open_store(url))
    with serve(story_url, story.database, url) as served:
        pull(served, run_id, tmp_path / "w")
        (straight,) = gets_of_weights(proxy)
        assert "X-Amz-Signature=" in straight


def test_a_download_that_breaks_off_goes_on_where_it_ended(
    story: Story, story_url: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    url = ENDPOINT.format(bucket=BUCKET, url=proxy.url, region=REGION)
    run_id = saved(story, open_store(url))
    with serve(story_url, story.database, url) as served:
        proxy.play(Fault(reaches_service=True, cut_at=5 << 20), on="model.safetensors?")
        pull(served, run_id, tmp_path / "w")
    assert len(gets_of_weights(proxy)) == 2


def test_what_a_redirect_says_is_never_taken_for_weights(
    story: Story, story_url: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    url = ENDPOINT.format(bucket=BUCKET, url=proxy.url, region=REGION)
    run_id = saved(story, open_store(url))
    elsewhere = Fault(status=307, code="TemporaryRedirect", headers=(("Location", "/elsewhere"),))
    with serve(story_url, story.database, url) as served:
        proxy.play(elsewhere, on="model.safetensors?")
        pull(served, run_id, tmp_path / "w")
    straight, *by_the_service = gets_of_weights(proxy)
    assert "X-Amz-Signature=" in straight
    assert len(by_the_service) == 2  # in pieces of 8 MiB


def test_weights_come_through_the_service_where_the_store_cannot_be_reached(
    story: Story, story_url: str, proxy: FaultyProxy, tmp_path: Path
) -> None:
    url = ENDPOINT.format(bucket=BUCKET, url=proxy.url, region=REGION)
    run_id = saved(story, open_store(url))
    with serve(story_url, story.database, f"{url}&public_url=http://127.0.0.1:1") as served:
        pull(served, run_id, tmp_path / "w")
    assert len(gets_of_weights(proxy)) == 2  # in pieces of 8 MiB


def test_what_an_earlier_pull_has_left_is_not_fetched_again(
    story: Story, served: Served, blobs: BlobStore, tmp_path: Path
) -> None:
    run_id = saved(story, blobs)
    (tmp_path / "w").mkdir()
    partial = tmp_path / "w" / ".model.safetensors.partial"
    partial.write_bytes(WEIGHTS[: 6 << 20])
    path = f"/v1/runs/{run_id}/checkpoints/10/files/policy/model.safetensors"
    with served.client() as client:
        rest = client.get(path, headers={"Range": f"bytes={6 << 20}-"})
        beyond = client.get(path, headers={"Range": f"bytes={len(WEIGHTS)}-"})
    assert (rest.status_code, rest.content) == (206, WEIGHTS[6 << 20 :])
    assert rest.headers["content-range"] == f"bytes {6 << 20}-{len(WEIGHTS) - 1}/{len(WEIGHTS)}"
    assert (beyond.status_code, len(beyond.content)) == (200, len(WEIGHTS))
    pull(served, run_id, tmp_path / "w")


def test_of_a_checkpoint_without_a_policy_the_adapter_is_brought(
    story: Story, served: Served, blobs: BlobStore, tmp_path: Path
) -> None:
    files = {
        "adapter/adapter_model.safetensors": WEIGHTS[:100],
        "adapter/adapter_config.json": b"{}",
        "learner/tinker.json": b"{}",
    }
    run_id = saved(story, blobs, files)
    environment = {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}
    result = CliRunner(mix_stderr=False).invoke(
        main, ["pull", run_id, str(tmp_path / "w")], env=environment, catch_exceptions=False
    )
    assert result.exit_code == 0, result.stderr
    assert {path.name for path in (tmp_path / "w").iterdir()} == {
        "adapter_model.safetensors",
        "adapter_config.json",
    }
    assert (tmp_path / "w" / "adapter_model.safetensors").read_bytes() == WEIGHTS[:100]


WAYS_OUT = ("policy/../../stolen", "policy//tmp/stolen", "policy/./../stolen", "policy/..\\stolen")


@pytest.mark.parametrize("path", WAYS_OUT)
def test_no_file_is_written_outside_of_the_folder_that_was_named(
    story: Story, served: Served, blobs: BlobStore, tmp_path: Path, path: str
) -> None:
    """Whoever writes a manifest names the files that somebody else's `pull` makes."""
    run_id = saved(story, blobs, {"policy/config.json": b"{}"})
    place = run_key(run_id, checkpoint_name(10, 1))
    entry = {"path": path, "size_bytes": 2, "sha256": hashlib.sha256(b"{}").hexdigest()}
    blobs.put(f"{place}/manifest.json", json.dumps({"files": [entry]}).encode())
    directory = tmp_path / "a" / "b"
    directory.mkdir(parents=True)
    before = {each for each in tmp_path.rglob("*") if "blobs" not in each.parts}
    environment = {"HILLCLIMB_API_URL": served.url, "HILLCLIMB_API_KEY": served.key}
    for args in (["pull", run_id, str(directory)],
                 ["export", "checkpoints", run_id, str(directory)]):  # fmt: skip
        refused = CliRunner(mix_stderr=False).invoke(main, args, env=environment)
        assert refused.exit_code == Exit.USAGE, refused.output
        assert "is no file inside of the checkpoint" in refused.stderr
    assert {each for each in tmp_path.rglob("*") if "blobs" not in each.parts} == before
