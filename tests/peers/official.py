"""What Fleet's own client does against minifleet's server; prints one JSON object of outcomes.

    FLEET_BASE_URL=... FLEET_API_KEY=... .venv-peers/bin/python tests/peers/official.py EPISODES

Runs in an environment of its own and imports nothing of Hillclimb. EPISODES is a recording
(`tests/trainer/envs/episodes.py`). Each function is one check and passes by returning.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from fleet import AsyncFleet, Fleet
from fleet import exceptions as errors
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client

EPISODES: list[dict[str, Any]] = json.loads(Path(sys.argv[1]).read_text())
SOLVED = next(each for each in EPISODES if each["agent"] == "expert")
BEARER = {"Authorization": f"Bearer {os.environ['FLEET_API_KEY']}"}


def main() -> None:
    """Make every check in turn, also after one that fails."""
    checks = {name: value for name, value in globals().items() if name.startswith("check_")}
    with ThreadPoolExecutor(max_workers=1) as one:
        ended = {name: one.submit(finish, check).exception() for name, check in checks.items()}
    outcomes = {
        name: "".join(traceback.format_exception(error)) if error else "ok"
        for name, error in ended.items()
    }
    sys.stdout.write(json.dumps(outcomes) + "\n")


def finish(check: Callable[[], Any]) -> None:
    """Make a check, whether it is a coroutine function or not."""
    found = check()
    if asyncio.iscoroutine(found):
        asyncio.run(found)


@contextlib.contextmanager
def faults(*rules: dict[str, Any]) -> Iterator[None]:
    """Switch faults on, and off again."""
    url = f"{os.environ['FLEET_BASE_URL']}/admin/faults"
    httpx.put(url, json={"rules": rules}, headers=BEARER).raise_for_status()
    try:
        yield
    finally:
        httpx.put(url, json={"rules": []}, headers=BEARER).raise_for_status()


async def call_all(url: str, calls: list[dict[str, Any]]) -> None:
    async with (
        streamable_http_client(url) as (read, write, _),
        ClientSession(read, write) as session,
    ):
        await session.initialize()
        for call in calls:
            await session.call_tool(call["name"], call["arguments"])


def check_the_catalogue() -> None:
    fleet = Fleet()
    names = [each.env_key for each in fleet.list_envs()]
    assert "booking" in names
    assert fleet.environment("booking").default_version == "v1"
    assert "us-west-1" in fleet.list_regions()
    tasks = fleet.load_tasks(env_key="booking")
    assert len(tasks) == 6
    assert all(task.verifier is not None for task in tasks), "a verifier could not be built"
    assert fleet.get_task(tasks[0].key).prompt == tasks[0].prompt


def check_an_episode_of_the_synchronous_client() -> None:
    fleet = Fleet()
    (task,) = fleet.load_tasks(keys=[SOLVED["task_key"]])
    env = fleet.make(
        task.env_key,
        data_key=task.data_key,
        env_variables=task.env_variables,
        ttl_seconds=60,
        run_id="sync",
        heartbeat_interval=60,
    )
    assert env.reset(seed=1).success
    beat = env.heartbeat()
    assert beat.success
    assert beat.interval_seconds == 60
    assert fleet.instance(env.instance_id).status == "running"
    assert [each.instance_id for each in fleet.instances(run_id="sync")] == [env.instance_id]
    assert task.verify(env) == 0.0
    asyncio.run(call_all(f"{env.urls.root}mcp", SOLVED["calls"]))
    assert task.verify(env) == 1.0
    assert fleet.account().instance_count == 1
    assert [each.instance_id for each in fleet.close_all(run_id="sync")] == [env.instance_id]
    assert fleet.account().instance_count == 0
    assert env.close().status == "stopped"


def check_that_the_verifier_source_grades_as_the_server_does() -> None:
    """Fleet's client runs the exported source itself, on the databases it reads over HTTP."""
    fleet = Fleet()
    for episode in one_of_each_app_and_reward():
        (task,) = fleet.load_tasks(keys=[episode["task_key"]])
        env = fleet.make(task.env_key, data_key=task.data_key, env_variables=task.env_variables)
        env.instance.load()
        asyncio.run(call_all(f"{env.urls.root}mcp", episode["calls"]))
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            local = task.verifier.func(env)
        remote = task.verify_detailed(env)
        env.close()
        assert local == remote.result == episode["reward"], episode["task_key"]
        assert printed.getvalue() == remote.stdout, episode["task_key"]


def one_of_each_app_and_reward() -> list[dict[str, Any]]:
    """Return the first solved episode of each app, and the first unsolved one with calls."""
    chosen = {
        (episode["env_key"], episode["reward"]): episode
        for episode in reversed(EPISODES)
        if episode["calls"]
    }
    assert {reward for _, reward in chosen} == {0.0, 1.0}
    return list(chosen.values())


def check_the_databases() -> None:
    fleet = Fleet()
    (task,) = fleet.load_tasks(keys=[SOLVED["task_key"]])
    env = fleet.make(task.env_key, data_key=task.data_key)
    assert sorted(each.name for each in env.resources()) == ["current", "seed"]
    seed, current = env.db("seed"), env.db("current")
    names = {table.name for table in current.describe().tables}
    first = sorted(names)[0]
    assert seed.query(f'SELECT count(*) FROM "{first}"').rows[0][0] >= 0
    assert not current.exec(f'DELETE FROM "{first}"').success
    seed.snapshot().diff(current.snapshot()).expect_only([])
    asyncio.run(call_all(f"{env.urls.root}mcp", SOLVED["calls"]))
    try:
        seed.snapshot().diff(current.snapshot()).expect_only([])
    except AssertionError:
        return
    finally:
        env.close()
    raise AssertionError("the episode's changes were not seen")


async def check_an_episode_of_the_asynchronous_client() -> None:
    fleet = AsyncFleet()
    (task,) = await fleet.load_tasks(keys=[SOLVED["task_key"]])
    env = await fleet.make(
        task.env_key, data_key=task.data_key, env_variables=task.env_variables, run_id="async"
    )
    assert (await env.reset()).success
    tools = await env.mcp.list_tools()
    assert {call["name"] for call in SOLVED["calls"]} <= {tool["name"] for tool in tools}
    assert tools[0]["input_schema"]["type"] == "object"
    await call_all(f"{env.urls.root}api/v1/mcp", SOLVED["calls"])
    assert await task.verify_async(env) == 1.0
    assert (await env.close()).status == "stopped"


def check_that_refusals_have_their_own_errors() -> None:
    fleet = Fleet()
    wrong: list[tuple[type[Exception], Callable[[], Any]]] = [
        (errors.FleetAuthenticationError, lambda: Fleet(api_key="wrong").account()),
        (errors.FleetEnvironmentNotFoundError, lambda: fleet.make("nowhere")),
        (errors.FleetVersionNotFoundError, lambda: fleet.make("booking:v9")),
        (errors.FleetRegionError, lambda: fleet.make("booking", region="mars-1")),
        (errors.FleetBadRequestError, lambda: fleet.make("booking", data_key="no-such-task")),
    ]
    for kind, call in wrong:
        try:
            call()
        except kind:
            continue
        raise AssertionError(f"no {kind.__name__}")


def check_the_instance_limit() -> None:
    fleet = Fleet()
    limit = fleet.account().instance_limit
    for _ in range(limit):
        fleet.make("booking", run_id="limit")
    counts = []
    try:
        fleet.make("booking", run_id="limit")
    except errors.FleetInstanceLimitError as error:
        counts = [error.running_instances, error.instance_limit]
    assert len(fleet.close_all(run_id="limit")) == limit
    assert counts == [limit, limit]


def check_that_a_create_with_a_lost_reply_is_adopted() -> None:
    """The client repeats its request id, is told 409, and takes the instance it made before."""
    fleet = Fleet()
    with faults({"on": ["create"], "lost_reply_rate": 1.0, "for_s": 0.3}):
        env = fleet.make("booking", run_id="lost")
    assert env.status == "running"
    assert [each.instance_id for each in fleet.close_all(run_id="lost")] == [env.instance_id]


def check_that_a_short_outage_is_retried() -> None:
    with faults({"on": ["account"], "error_rate": 1.0, "error_status": 503, "for_s": 0.3}):
        assert Fleet().account().instance_count == 0


def check_a_logged_session() -> None:
    session = Fleet().start_session(model="scripted", task_key=SOLVED["task_key"])
    history = [{"role": "user", "content": "Book a room."}]
    assert session.log(history, {"role": "assistant", "content": "Done."}).message_count == 2
    assert session.complete().session_id == session.session_id


if __name__ == "__main__":
    main()
