"""No instance is left: after success, failure, cancel and `kill -9`, each a real process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from hillclimb.environment.deadline import within
from hillclimb.environment.errors import EnvUnavailable
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.protocol.rundir import AttemptDir, ExitRecord
from tests.trainer.envs.fleet.instances.leaving import run
from tests.trainer.envs.fleet.scene import LEASE, TASK, on_server, with_payload
from tests.trainer.envs.fleet_server import API_KEY, HEADERS, fleet_server_thread
from tests.trainer.fixtures.forked import run_forked
from tests.trainer.fixtures.short_run import short_spec
from tests.trainer.fixtures.tiny_model import write_tiny_model
from trainer.envs.fleet.instances import instances
from trainer.envs.fleet.instances.limiter import Limiter
from trainer.envs.fleet.provider import FleetProvider
from trainer.envs.fleet.wire.api import FleetAccount, FleetApi
from trainer.envs.fleet.wire.faults import WireFault
from trainer.envs.fleet.wire.retry import CallRetry, Meter

ROOT = Path(__file__).parents[5]
KNOWN = with_payload(verifier_code="def verify(env):\n    return 1\n")
"""A task that need not be looked up: its first request is the creation."""
OTHER = minifleet_tasks(["github"], "train", 1, seed=0)[0]
SHORT = {
    "data": {"env_keys": ["booking"], "train_tasks_per_env": 4, "eval_tasks_per_env": 1},
    "rollout": {
        "n_samples_per_prompt": 4,
        "max_input_length": 3900,
        "max_generate_length": 8,
        "max_sequence_length": 4000,
    },
    "schedule": {"total_steps": 1, "train_batch_size": 2, "mini_batch_size": 1},
    "eval": {"before_training": False, "interval": 0},
}


@pytest.fixture(scope="module")
def server() -> Iterator[httpx.Client]:
    with fleet_server_thread() as url, httpx.Client(base_url=url, headers=HEADERS) as client:
        yield client


def stats(server: httpx.Client) -> Any:
    return server.get("/admin/stats").raise_for_status().json()["instances"]


def trained(
    root: Path, server: httpx.Client, how: str, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, AttemptDir, str]:
    """Train in a process that leaves in the given way."""
    monkeypatch.setenv("FLEET_API_KEY", API_KEY)
    monkeypatch.setenv("FLEET_BASE_URL", str(server.base_url).rstrip("/"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    model = write_tiny_model(root / "model", positions=4000)
    spec = short_spec(model, environment={"provider": "fleet", "max_turns": 2}, **SHORT)
    where = AttemptDir(root / "runs" / f"run_{root.name}", 1)
    where.path.mkdir(parents=True)
    where.spec.write_text(json.dumps(spec.model_dump(mode="json")))
    command = ["run", "--spec", str(where.spec), "--run-dir", str(where.run_dir)]
    done = run_forked(run, [how, *command], timeout_s=300.0)
    assert API_KEY not in where.log.read_text() + done.stderr
    return done.returncode, where, done.stderr


@pytest.mark.parametrize(
    ("how", "exit_code", "reason"),
    [
        ("not at all", 0, "completed"),
        pytest.param("failure", 1, "non_finite_update", marks=pytest.mark.long),
        ("SIGTERM", 0, "runner_stopped"),
    ],
)
def test_a_trainer_that_leaves_takes_its_instances_along(
    how: str,
    exit_code: int,
    reason: str,
    server: httpx.Client,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = stats(server)["created"]
    code, where, errors = trained(tmp_path, server, how, monkeypatch)
    assert (code, ExitRecord.model_validate_json(where.exit.read_bytes()).reason.value) == (
        exit_code,
        reason,
    ), errors
    after = stats(server)
    assert after["created"] > before
    assert after["running"] == 0


@pytest.mark.long
def test_what_a_killed_trainer_holds_is_swept_by_name(
    server: httpx.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, where, _ = trained(tmp_path, server, "SIGKILL", monkeypatch)
    assert code == -signal.SIGKILL
    num_left = stats(server)["running"]
    assert num_left > 0
    command = [sys.executable, "-m", "trainer.envs.sweep", "--run-dir", str(where.run_dir)]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    # Nobody wrote down which process it was: it may still run.
    careful = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert (careful.returncode, careful.stdout) == (0, "0 instances deleted\n")
    assert "attempt 1 was left alone" in careful.stderr
    command += ["--attempt", "1"]
    for found in (num_left, 0):
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, f"{found} instances deleted\n"), done.stderr
        assert stats(server)["running"] == 0
    environ["FLEET_API_KEY"] = "wrong"
    wrong = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert wrong.returncode == 1
    assert "unauthorized (401)" in wrong.stderr


@pytest.mark.invariant("heartbeats keep an instance, and silence ends it")
async def test_heartbeats_keep_an_instance_and_silence_ends_it() -> None:
    async with on_server(lease=replace(LEASE, heartbeat_interval_s=2)) as (server, provider):
        env = provider.make(TASK)
        await env.reset()
        await asyncio.sleep(3.2)
        assert (await server.stats())["instances"]["running"] == 1
        # As after a kill: nobody sends heartbeats any more.
        platform = provider._platform
        assert platform is not None
        assert platform.instances._heartbeat_task is not None
        platform.instances._heartbeat_task.cancel()
        await asyncio.sleep(2.4)
        assert (await server.stats())["instances"]["ended"] == {"heartbeat_missed": 1}
        with pytest.raises(EnvUnavailable, match="the instance has ended"):
            await env.call("search", {})
        await env.close()


async def test_an_instance_that_is_made_after_its_rollout_gave_up_is_deleted() -> None:
    async with on_server() as (server, provider):
        await server.faults({"on": ["create"], "latency_s": 0.5})
        env = provider.make(TASK)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await env.reset()
        await env.close()
        await background_of(provider)
        assert (await server.stats())["instances"]["ended"] == {"deleted": 1}


async def background_of(provider: FleetProvider) -> None:
    """Wait for what is deleted in the background, and what that leads to."""
    platform = provider._platform
    assert platform is not None
    while platform.instances._background:
        await asyncio.gather(*platform.instances._background)


async def test_a_creation_that_outlasts_the_deadline_leaves_no_instance() -> None:
    async with on_server() as (server, provider):
        await server.faults({"on": ["create"], "latency_s": 0.8})
        env = provider.make(KNOWN)
        with pytest.raises(EnvUnavailable, match="creation did not answer"), within(0.2):
            await env.reset()
        await env.close()
        await background_of(provider)
        stats = (await server.stats())["instances"]
        assert (stats["created"], stats["ended"]) == (1, {"deleted": 1})


async def test_a_creation_whose_every_answer_is_lost_leaves_no_instance() -> None:
    async with on_server() as (server, provider):
        await server.faults(
            {"on": ["create"], "lost_reply_rate": 1.0, "retryable": None},
            {"on": ["get"], "error_rate": 1.0, "error_status": 503},
        )
        env = provider.make(KNOWN)
        with pytest.raises(EnvUnavailable), within(0.6):
            await env.reset()
        await background_of(provider)
        stats = (await server.stats())["instances"]
        assert (stats["created"], stats["ended"]) == (1, {"deleted": 1})


ANSWER_502 = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


async def test_in_a_storm_few_ask_at_once_what_their_creations_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(instances, "CLOSE_S", 0.5)
    num_open = most_open = 0

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal num_open, most_open
        num_open += 1
        most_open = max(most_open, num_open)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(0.3)
        # Before the answer: whoever has it may ask again before this connection is closed.
        num_open -= 1
        with suppress(ConnectionError):
            writer.write(ANSWER_502)
            await writer.drain()
        writer.close()

    storm = await asyncio.start_server(refuse, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{storm.sockets[0].getsockname()[1]}"
    api = FleetApi(FleetAccount(base_url=url, key=API_KEY))
    num_owned = instances.FleetInstances(api, replace(LEASE, heartbeat_interval_s=1))
    patience = CallRetry(operation_s=1.0, meter=Meter(), load=Limiter(1))

    async def make() -> None:
        with within(0.1):
            await num_owned.make({"env_key": "booking"}, patience, Limiter(1))

    found = await asyncio.gather(*(make() for _ in range(20)), return_exceptions=True)
    assert {type(each) for each in found} == {WireFault}
    async with asyncio.timeout(30.0):
        while num_open > instances.UNDOS:  # noqa: ASYNC110 - the creations' own connections
            await asyncio.sleep(0.01)
    most_open = 0
    await asyncio.sleep(0.7)
    assert 1 <= most_open <= instances.UNDOS
    await asyncio.sleep(0.5)
    assert len(num_owned._background) == instances.UNDOS, "the others are left to their silence"
    with suppress(WireFault):
        await num_owned.close()
    await api.close()
    storm.close()
    async with asyncio.timeout(30.0):
        while num_open:  # noqa: ASYNC110 - else the loop ends before them
            await asyncio.sleep(0.01)


QUICK = replace(LEASE, operation_s=0.2)
"""A creation that takes longer is asked for again, and is then told which instance it makes."""


async def test_an_instance_that_does_not_come_to_run_in_time_is_deleted() -> None:
    async with on_server(lease=QUICK) as (server, provider):
        await server.faults({"on": ["create"], "latency_s": 3.0})
        env = provider.make(KNOWN)
        with pytest.raises(EnvUnavailable, match="is pending"), within(1.2):
            await env.reset()
        await env.close()
        await background_of(provider)
        stats = (await server.stats())["instances"]
        assert (stats["created"], stats["ended"]) == (1, {"deleted": 1})
        assert provider.account_limiter.num_owned == 0


@pytest.mark.parametrize("how", ["ended", "cancelled"])
async def test_an_instance_that_never_runs_is_held_by_nobody(how: str) -> None:
    async with on_server(lease=QUICK) as (server, provider):
        await server.faults({"on": ["create"], "latency_s": 3.0})
        env = provider.make(KNOWN)
        resetting = asyncio.create_task(env.reset())
        while provider.account_limiter.num_owned == 0:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.02)
        (row,) = await server.json("GET", "/v1/env/instances")
        assert row["status"] == "pending"
        if how == "ended":
            await server.json("POST", f"/admin/instances/{row['instance_id']}/expire")
            with pytest.raises(EnvUnavailable, match="not_started"):
                await resetting
        else:
            resetting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await resetting
        await background_of(provider)
        assert provider.account_limiter.num_owned == 0
        assert (await server.stats())["instances"]["running"] == 0
        platform = provider._platform
        assert platform is not None
        assert platform.instances._owned == {}


@pytest.mark.invariant("one hanging heartbeat ends no other instance")
async def test_a_heartbeat_that_hangs_is_no_other_instances_end() -> None:
    lease = replace(LEASE, heartbeat_interval_s=2)
    async with on_server(lease=lease) as (server, provider):
        kept, lost = provider.make(TASK), provider.make(OTHER)
        await kept.reset()
        await lost.reset()
        await server.faults({"on": ["heartbeat"], "env_keys": ["github"], "hang_rate": 1.0})
        await asyncio.sleep(4.5)
        stats = (await server.stats())["instances"]
        assert (stats["running"], stats["ended"]) == (1, {"heartbeat_missed": 1})
        await kept.call("list_bookings", {"guest": "nobody"})
        await kept.close()
        await lost.close()


async def test_a_deletion_that_fails_is_tried_again_and_at_last_by_name() -> None:
    async with on_server(lease=replace(LEASE, heartbeat_interval_s=1)) as (server, provider):
        env, other = provider.make(TASK), provider.make(TASK)
        await env.reset()
        await other.reset()
        await server.faults({"on": ["delete"], "error_rate": 1.0, "for_s": 0.9})
        with within(0.3):
            await env.close()
        assert (await server.stats())["instances"]["running"] == 2
        await asyncio.sleep(1.2)
        assert (await server.stats())["instances"]["running"] == 1
        await provider.close()
        assert (await server.stats())["instances"]["running"] == 0


def test_a_rollout_worker_is_waited_for_until_its_provider_has_given_up() -> None:
    workers = pytest.importorskip("trainer.workers.ray.workers", reason="Ray is not installed here")
    assert workers.ROLLOUTS_CLOSE_S > instances.CLOSE_S
