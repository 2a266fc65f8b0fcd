"""`hillclimb capsule` against the real application: export, show, spec, fork, and damaged files."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.clusters import store as clusters
from hillclimb.blobs.archive import capsule as archive
from hillclimb.cli.terminal.exits import Exit
from hillclimb.process.code_revision import code_revision
from tests.api.clusters.cluster_story import rented
from tests.api.datasets.samples import PLAYED, lines, tasks
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json

RATES = {"booking": 0.2, "github": 0.5}


def ended(story: Story) -> str:
    """A run of two evaluations, with missing outcomes in the second one."""
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, RATES), story.step(run_id, 1, RATES))
    story.push(run_id, story.evaluation(run_id, 40, {"booking": 0.6}, infra_share=0.2))
    story.finish(run_id, 40)
    return run_id


@pytest.fixture
def run_id(story: Story) -> str:
    return ended(story)


@pytest.fixture
def capsule(hc: Invoke, run_id: str, tmp_path: Path) -> Path:
    path = tmp_path / "capsule.zip"
    assert hc("capsule", "export", run_id, "--to", str(path)).exit_code == 0
    return path


def rewrite(path: Path, change: Callable[[dict[str, bytes]], object]) -> None:
    """Write the capsule again with other members."""
    with zipfile.ZipFile(path) as old:
        members = {name: old.read(name) for name in old.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, content in members.items():
            new.writestr(name, content)


def test_a_capsule_shows_what_made_the_run_and_its_pass_rates_anew(
    hc: Invoke, served: Served, run_id: str, capsule: Path
) -> None:
    shown = hc("capsule", "show", str(capsule))
    assert shown.exit_code == 0, shown.stderr
    assert max(map(len, shown.stdout.splitlines())) <= 80
    code = code_revision()
    for fact in (run_id, "succeeded (completed)", code.source_digest, "data.seed 0", "torch 2.13"):
        assert fact in shown.stdout
    facts = from_json(hc("capsule", "show", str(capsule), "--json"))
    assert facts["code"]["locks"] == code.locks
    assert facts["code"]["locks"]["service.txt"]
    with served.client() as client:
        table = client.get(f"/v1/runs/{run_id}/evals").json()["data"]
    assert [(each["step"], each["decoding"]) for each in table] == [(0, "sampled"), (40, "sampled")]
    for stored, anew in zip(table, facts["evals"], strict=True):
        assert anew["pass_at_1"] == stored["all"]["pass_at_1"]
        assert anew["n"] == stored["all"]["n"]
        envs = {env: rate["pass_at_1"] for env, rate in stored["envs"].items()}
        assert anew["envs"] == envs


def test_an_ended_run_gives_the_same_bytes_each_time(
    hc: Invoke, run_id: str, capsule: Path, tmp_path: Path
) -> None:
    again = tmp_path / "again.zip"
    assert hc("capsule", "export", run_id, "--to", str(again)).exit_code == 0
    assert again.read_bytes() == capsule.read_bytes()


def test_a_fork_has_the_same_config_hash_unless_a_key_is_set(
    hc: Invoke, run_id: str, capsule: Path
) -> None:
    original = from_json(hc("show", run_id, "--json"))
    forked = from_json(hc("capsule", "fork", str(capsule), "--json"))
    assert forked["id"] != run_id
    assert forked["config_hash"] == original["config_hash"]
    other = hc("capsule", "fork", str(capsule), "--set", "data.seed=5")
    assert "another config_hash" in other.stdout


def test_the_spec_of_a_capsule_can_be_submitted(
    hc: Invoke, run_id: str, capsule: Path, tmp_path: Path
) -> None:
    printed = hc("capsule", "spec", str(capsule))
    assert printed.exit_code == 0
    assert printed.stderr == ""
    (tmp_path / "spec.yaml").write_text(printed.stdout)
    again = from_json(hc("submit", str(tmp_path / "spec.yaml"), "--json"))
    assert again["config_hash"] == from_json(hc("show", run_id, "--json"))["config_hash"]


def validated(hc: Invoke, folder: Path) -> tuple[Any, str, str]:
    """A run on the newest version of `fleet`, and its capsules without and with its rows."""
    spec = folder / "spec.yaml"
    spec.write_text("name: x\nkind: validate\ndata: {dataset: fleet}\n" + PLAYED)
    run = from_json(hc("submit", str(spec), "--json"))
    bare, full = str(folder / "bare.zip"), str(folder / "full.zip")
    assert hc("capsule", "export", run["id"], "--to", bare).exit_code == 0
    assert hc("capsule", "export", run["id"], "--to", full, "--tasks").exit_code == 0
    return run, bare, full


def test_a_split_that_follows_from_earlier_versions_is_refused_before_anything_is_stored(
    hc: Invoke, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(lines(tasks(booking=60, github=60)))
    assert hc("datasets", "create", "fleet", str(file)).exit_code == 0
    options = ("--set", "split.salt=7", "--set", "split.max_train_per_env=20")
    assert hc("datasets", "create", "fleet", "fleet@1", *options).exit_code == 0
    full = validated(hc, tmp_path)[2]
    monkeypatch.setenv("HILLCLIMB_API_KEY", served.stranger_key)
    refused = hc("capsule", "fork", full)
    assert "the split of fleet@2 cannot be made again from its rows" in refused.stderr
    assert from_json(hc("datasets", "list", "--json"))["data"] == []


def test_a_dataset_is_made_again_on_another_installation(
    hc: Invoke, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tasks.jsonl").write_bytes(lines(tasks(booking=60, github=60)))
    excluded = "exclusions=[{scope: task, key: booking-001, reason: no date}]"
    options = ("--set", "split.max_train_per_env=20", "--set", excluded)
    file = str(tmp_path / "tasks.jsonl")
    version = from_json(hc("datasets", "create", "fleet", file, *options, "--json"))
    assert version["num_excluded"] > 1
    run, bare, full = validated(hc, tmp_path)
    here = from_json(hc("capsule", "fork", bare, "--json"))
    assert here["config_hash"] == run["config_hash"]

    monkeypatch.setenv("HILLCLIMB_API_KEY", served.stranger_key)
    lacks = hc("capsule", "spec", bare)
    assert "dataset fleet has no version here" in lacks.stderr
    assert yaml.safe_load(lacks.stdout)["data"]["dataset"]["digest"] == version["digest"]
    refused = hc("capsule", "fork", bare)
    assert refused.exit_code != 0
    assert "has no rows of its dataset" in refused.stderr
    there = from_json(hc("capsule", "fork", full, "--json"))
    reference = there["spec"]["data"]["dataset"]
    assert (reference["digest"], reference["version"]) == (version["digest"], 1)
    assert reference["id"] != version["id"]
    assert from_json(hc("capsule", "fork", full, "--json"))["spec"]["data"]["dataset"] == reference


def test_a_taken_name_of_a_dataset_is_refused_and_another_one_accepted(
    hc: Invoke, served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_bytes(lines(tasks(booking=60)))
    assert hc("datasets", "create", "fleet", str(file)).exit_code == 0
    full = validated(hc, tmp_path)[2]
    monkeypatch.setenv("HILLCLIMB_API_KEY", served.stranger_key)
    file.write_bytes(lines(tasks(booking=61)))
    assert hc("datasets", "create", "fleet", str(file)).exit_code == 0
    assert "dataset fleet exists here" in hc("capsule", "fork", full).stderr
    forked = from_json(hc("capsule", "fork", full, "--dataset", "fleet-copy", "--json"))
    assert forked["spec"]["data"]["dataset"]["name"] == "fleet-copy"


def test_machines_are_in_the_manifest_without_cluster_name_account_or_address(
    hc: Invoke, story: Story, tmp_path: Path
) -> None:
    run_id, path = rented(story), tmp_path / "rented.zip"
    assert hc("capsule", "export", run_id, "--to", str(path)).exit_code == 0
    shown = from_json(hc("capsule", "show", str(path), "--json"))
    cluster = shown["attempts"][0]["cluster"]
    assert (cluster["cloud"], cluster["hourly_usd"]) == ("nebius", 23.92)
    assert [each["outcome"] for each in cluster["tries"]] == ["refused", "up"]
    with story.database.transaction() as session:
        name = clusters.of_run(session, run_id)[0].name
    assert name not in json.dumps(shown)
    assert "no H100 left" not in json.dumps(shown)


def test_a_changed_byte_in_any_member_is_found_and_named(hc: Invoke, capsule: Path) -> None:
    with zipfile.ZipFile(capsule) as whole:
        places = {each.filename: each for each in whole.infolist()}
    assert len(places) == 5
    for name, info in places.items():
        damaged = capsule.with_name("damaged.zip")
        data = bytearray(capsule.read_bytes())
        header = info.header_offset
        begin = header + 30 + int.from_bytes(data[header + 26 : header + 28], "little")
        begin += int.from_bytes(data[header + 28 : header + 30], "little")
        data[begin + info.compress_size // 2] ^= 0x10
        damaged.write_bytes(data)
        result = hc("capsule", "show", str(damaged))
        assert result.exit_code == Exit.USAGE, name
        assert name in result.stderr


def test_a_member_that_was_replaced_with_a_right_checksum_is_found(
    hc: Invoke, capsule: Path
) -> None:
    rewrite(capsule, lambda members: members.update({"events.jsonl": b"{}\n"}))
    assert (
        "events.jsonl is not what its manifest says" in hc("capsule", "show", str(capsule)).stderr
    )


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_refused(hc: Invoke, capsule: Path, share: float) -> None:
    capsule.write_bytes(capsule.read_bytes()[: int(capsule.stat().st_size * share)])
    result = hc("capsule", "show", str(capsule))
    assert result.exit_code == Exit.USAGE
    assert "is not a capsule, or was cut off" in result.stderr


def newer(members: dict[str, bytes]) -> None:
    manifest = json.loads(members["capsule.json"]) | {"schema_version": 2}
    members["capsule.json"] = json.dumps(manifest).encode()


def unlisted(members: dict[str, bytes]) -> None:
    members["dataset/version.json"] = b"{}"


def listed_twisted_rows(members: dict[str, bytes]) -> None:
    members["outcomes.jsonl"] = b'{"step": 0}\n'
    manifest = json.loads(members["capsule.json"])
    sha256 = hashlib.sha256(members["outcomes.jsonl"]).hexdigest()
    manifest["members"]["outcomes.jsonl"] = {"sha256": sha256, "size_bytes": 12}
    members["capsule.json"] = json.dumps(manifest).encode()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (newer, "schema version 2, and this version of Hillclimb reads up to 1"),
        (unlisted, "dataset/version.json is not in its manifest"),
        (lambda members: members.update({"../../x": b""}), "'../../x' is no member of a capsule"),
        (lambda members: members.update({"/etc/x": b""}), "'/etc/x' is no member of a capsule"),
        (lambda members: members.pop("spec.json"), "the capsule has no spec.json"),
        (lambda members: members.pop("capsule.json"), "the capsule has no capsule.json"),
        (lambda members: members.update({"capsule.json": b"[]"}), "capsule.json is not valid"),
        (lambda members: members.update({"capsule.json": b"["}), "capsule.json is no JSON"),
        (listed_twisted_rows, "has a row that is no such row"),
    ],
)
def test_what_no_capsule_has_is_refused_in_a_sentence(
    hc: Invoke, capsule: Path, change: Callable[[dict[str, bytes]], object], said: str
) -> None:
    rewrite(capsule, change)
    for name in ("show", "fork") if change is not listed_twisted_rows else ("show",):
        result = hc("capsule", name, str(capsule))
        assert result.exit_code == Exit.USAGE
        assert said in result.stderr


def test_sizes_are_limited_before_anything_is_unpacked(
    hc: Invoke, capsule: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = str(shutil.copy(capsule, capsule.with_name("bomb.zip")))
    rewrite(Path(bomb), lambda members: members.update({"spec.json": b" " * (65 << 20)}))
    assert Path(bomb).stat().st_size < 1 << 20
    assert "spec.json unpacks to more than 67,108,864 bytes" in hc("capsule", "show", bomb).stderr
    monkeypatch.setattr(archive, "MAX_BYTES", 1000)
    assert "the capsule unpacks to more than 1,000" in hc("capsule", "show", str(capsule)).stderr


def test_unknown_runs_and_those_of_other_projects_are_not_found(
    hc: Invoke, served: Served, run_id: str, tmp_path: Path
) -> None:
    target = tmp_path / "none.zip"
    result = hc("capsule", "export", "run_nowhere", "--to", str(target))
    assert result.exit_code == Exit.NOT_FOUND
    assert not list(tmp_path.glob("*none*"))
    with served.client(served.stranger_key) as stranger:
        assert stranger.get(f"/v1/runs/{run_id}/capsule").status_code == 404
    with served.client() as owner:
        refused = owner.get(f"/v1/runs/{run_id}/capsule?tasks=perhaps")
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid")


def test_a_capsule_is_imported_once(hc: Invoke, run_id: str, capsule: Path) -> None:
    first = from_json(hc("capsule", "import", str(capsule), "--json"))
    assert (first["origin"]["kind"], first["origin"]["source"]) == ("capsule", run_id)
    assert first["id"] != run_id
    again = hc("capsule", "import", str(capsule))
    assert again.stdout.startswith(first["id"])
    assert "step 0 (sampled), step 40 (sampled)" in again.stdout
    rewrite(capsule, lambda members: members.update({"spec.json": b"{}"}))
    assert hc("capsule", "import", str(capsule)).exit_code == Exit.USAGE
