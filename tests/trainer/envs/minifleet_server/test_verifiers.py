"""Grading over the wire: which verifiers are recognised, and that nothing sent is ever run."""

from __future__ import annotations

import base64
import hashlib
import pickle
import random
from pathlib import Path
from typing import Any

import pytest

from hillclimb.minifleet.catalog import APPS, find_task
from hillclimb.minifleet.export import graded_task, verifier_source
from hillclimb.minifleet.server.state import task_registry
from hillclimb.minifleet.server.state.task_registry import TaskRegistry
from hillclimb.minifleet.server.state.verifiers import ExecuteRequest, VerifierFailure, resolve
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.trainer.envs.fleet_server import FleetServer
from tests.trainer.envs.minifleet_server.test_episodes import bundle, execute
from tests.trainer.envs.minifleet_server.test_manager import solve

TASK = minifleet_tasks(["booking"], "train", 1, seed=0)[0]
SOURCE = verifier_source(TASK)
SHA = hashlib.sha256(SOURCE.encode()).hexdigest()
BUNDLE = bundle(SOURCE)


def sha_of(sent: str) -> str:
    """Return the hash of a bundle, as Fleet's own client sends it."""
    return hashlib.sha256(base64.b64decode(sent)).hexdigest()


class Hostile:
    """Unpickling this makes a file."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (self.target, "owned")


async def test_a_pickle_and_a_source_that_a_client_sends_are_never_run(
    server: FleetServer, tmp_path: Path
) -> None:
    target = tmp_path / "owned"
    poison = pickle.dumps({"args": (None, Hostile(target)), "kwargs": {}})
    pickle.loads(poison)
    assert target.read_text() == "owned", "the pickle is harmless: it proves nothing"
    target.unlink()
    made = await server.make(data_key=TASK.key)
    arguments = base64.b64encode(poison).decode()
    graded = await execute(server, made["instance_id"], key=TASK.key, args=arguments)
    evil = f"open({str(target)!r}, 'w').write('owned')\n"
    for source in (evil, evil + SOURCE, SOURCE + evil, SOURCE.replace("return 0", "return 1")):
        refused = await execute(
            server, made["instance_id"], key=TASK.key, args=arguments, bundle=bundle(source)
        )
        assert refused["success"] is False
        assert refused["error"]["type"] == "VerifierNotRegistered"
    assert (graded["success"], graded["result"]) == (True, 0)
    assert not target.exists()


@pytest.mark.parametrize(
    "named",
    [
        {"key": TASK.key},
        {"key": TASK.key, "sha256": SHA},
        {"key": "another-name", "bundle": bundle(SOURCE)},
        {"key": TASK.key, "sha256": sha_of(BUNDLE), "bundle": BUNDLE},
        {
            "key": TASK.key,
            "bundle": bundle(SOURCE, "numpy\nfleet-python>=0.2 ; python_version > '3'"),
        },
    ],
    ids=["key", "key and hash", "source", "source with the hash of its zip file", "requirements"],
)
async def test_a_verifier_is_recognised(server: FleetServer, named: dict[str, str]) -> None:
    made = await server.make(data_key=TASK.key)
    await solve(server, made, TASK)
    graded = await execute(server, made["instance_id"], **named)
    assert (graded["success"], graded["result"]) == (True, 1)
    assert graded["execution_time_ms"] >= 0
    assert graded["execution_id"]
    assert ">>> SUCCESS_ACCUMULATOR >>>\n" in graded["stdout"]


async def test_a_hash_alone_is_recognised_once_its_task_was_served(server: FleetServer) -> None:
    made = await server.make(data_key=TASK.key)
    unknown = await server.json("GET", "/v1/verifiers/check", params={"sha256": SHA})
    body = {"sha256": SHA, "args_array": [{"env": made["instance_id"]}]}
    refusal = await server.json("POST", "/v1/verifiers/execute", 400, json=body)
    await server.json("GET", f"/v1/tasks/{TASK.key}")
    known = await server.json("GET", "/v1/verifiers/check", params={"sha256": SHA})
    assert (unknown["success"], known["success"]) == (False, True)
    assert "not found" in refusal["detail"]
    assert (await execute(server, made["instance_id"], sha256=SHA))["result"] == 0


async def test_a_bundle_is_known_by_its_hash_once_it_was_uploaded(server: FleetServer) -> None:
    made = await server.make(data_key=TASK.key)
    named = {"key": "another-name", "sha256": sha_of(BUNDLE)}
    body = {**named, "args_array": [{"env": made["instance_id"]}]}
    await server.json("POST", "/v1/verifiers/execute", 400, json=body)
    unknown = await server.json("GET", "/v1/verifiers/check", params=named)
    await execute(server, made["instance_id"], **named, bundle=BUNDLE)
    known = await server.json("GET", "/v1/verifiers/check", params=named)
    assert (unknown["success"], known["success"]) == (False, True)
    assert (await execute(server, made["instance_id"], **named))["result"] == 0


def test_no_more_bundles_are_remembered_than_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_registry, "MAX_BUNDLES", 2)
    tasks = TaskRegistry(0)
    for sha256 in ("a", "b", "c"):
        tasks.remember_bundle(sha256, TASK.key)
    assert [tasks.key_of_bundle(each) for each in "abc"] == [None, TASK.key, TASK.key]


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"kwargs": {}}, "kwargs"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": 301}, "timeout"),
        ({"args_array": "none"}, "args_array"),
    ],
)
async def test_a_body_that_fleets_models_do_not_allow_is_refused(
    server: FleetServer, sent: dict[str, Any], field: str
) -> None:
    made = await server.make(data_key=TASK.key)
    body = {"key": TASK.key, "args_array": [{"env": made["instance_id"]}], **sent}
    refusal = await server.json("POST", "/v1/verifiers/execute", 422, json=body)
    assert [each["loc"] for each in refusal["detail"]] == [["body", field]]


async def test_a_hash_that_is_not_the_bundles_is_refused(server: FleetServer) -> None:
    made = await server.make(data_key=TASK.key)
    arguments = {"args_array": [{"env": made["instance_id"]}]}
    body = {"key": TASK.key, "sha256": SHA, "bundle": BUNDLE, **arguments}
    refusal = await server.json("POST", "/v1/verifiers/execute", 422, json=body)
    assert refusal["detail"] == (f"sha256 is not the hash of the bundle, which is {sha_of(BUNDLE)}")


@pytest.mark.parametrize("requirements", [None, "", "fleet", "fleet-python-extras"])
async def test_a_verifier_without_its_package_does_not_run(
    server: FleetServer, requirements: str | None
) -> None:
    made = await server.make(data_key=TASK.key)
    failed = await execute(
        server, made["instance_id"], key=TASK.key, bundle=bundle(SOURCE, requirements)
    )
    assert (failed["success"], failed["error"]["type"]) == (False, "ModuleNotFoundError")


@pytest.mark.parametrize(
    "sent",
    ["%%%", base64.b64encode(b"no zip").decode(), bundle("é" * 10)[:40]],
    ids=["no base64", "no zip", "half a zip"],
)
async def test_a_broken_bundle_gets_a_sentence(server: FleetServer, sent: str) -> None:
    made = await server.make(data_key=TASK.key)
    refused = await execute(server, made["instance_id"], bundle=sent)
    assert refused["success"] is False
    assert refused["error"]["message"].startswith("the bundle ")


def test_a_damaged_bundle_is_never_more_than_refused() -> None:
    whole, rng, book = base64.b64decode(bundle(SOURCE)), random.Random(0), TaskRegistry(0)
    refused = 0
    for _ in range(1000):
        damaged = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            resolve(ExecuteRequest(bundle=base64.b64encode(damaged).decode()), book)
        except VerifierFailure:
            refused += 1
    assert refused > 500


async def test_what_cannot_be_graded_is_no_zero(server: FleetServer) -> None:
    made = await server.make(data_key=TASK.key)
    unknown = await execute(server, made["instance_id"], key="no-such-task")
    assert (unknown["success"], unknown.get("result")) == (False, None)
    await server.json("DELETE", f"/v1/env/instances/{made['instance_id']}")
    gone = await execute(server, made["instance_id"], key=TASK.key)
    assert gone["error"]["type"] == "InstanceNotRunning"
    body = {"key": TASK.key, "args_array": ["answer"]}
    await server.json("POST", "/v1/verifiers/execute", 422, json=body)


async def test_an_instance_is_graded_by_the_verifier_that_is_named(server: FleetServer) -> None:
    other = minifleet_tasks(["booking"], "train", 2, seed=0)[1]
    made = await server.make(data_key=TASK.key)
    await solve(server, made, TASK)
    assert (await execute(server, made["instance_id"], key=TASK.key))["result"] == 1
    assert (await execute(server, made["instance_id"], key=other.key))["result"] == 0


@pytest.mark.parametrize("app", APPS)
def test_every_apps_source_names_its_task_and_compiles(app: str) -> None:
    for task in minifleet_tasks([app], "eval", 12, seed=1, held_out_share=0.5):
        source = verifier_source(task)
        compile(source, "verifier.py", "exec")
        assert graded_task(source) == task.key
        assert find_task(task.key) == task


@pytest.mark.parametrize(
    "key",
    ["booking", "booking/train/none/000001", "booking/test/x/1", "nowhere/train/a/000001", ""],
)
def test_a_key_of_no_task_finds_none(key: str) -> None:
    assert find_task(key) is None
