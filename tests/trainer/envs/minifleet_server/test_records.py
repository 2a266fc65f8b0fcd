"""Tasks and sessions of the account."""

from __future__ import annotations

from hillclimb.datasets.read.reading import Reading
from hillclimb.minifleet.catalog import APPS, find_task
from hillclimb.minifleet.export import task_row, tasks_document
from hillclimb.minifleet.tasks import minifleet_tasks
from tests.trainer.envs.fleet_server import FleetServer
from tests.trainer.envs.minifleet_server.test_episodes import bundle, execute

TASK = minifleet_tasks(["booking"], "eval", 1, seed=9)[0]


async def test_the_list_has_every_environments_tasks(server: FleetServer) -> None:
    listed = await server.json("GET", "/v1/tasks")
    assert listed["total"] == len(listed["tasks"]) == 8 * len(APPS)
    one = await server.json("GET", "/v1/tasks", params={"env_key": "reddit"})
    assert {task["environment_id"] for task in one["tasks"]} == {"reddit"}
    assert len(one["tasks"]) == 8
    required = {"key", "prompt", "team_id", "environment_id", "created_at"}
    assert all(required <= task.keys() for task in listed["tasks"])


async def test_any_task_can_be_asked_for_by_key(server: FleetServer) -> None:
    params = {"task_keys": [TASK.key, "no-such-task"]}
    (row,) = (await server.json("GET", "/v1/tasks", params=params))["tasks"]
    exported = task_row(TASK)
    assert {name: row[name] for name in exported} == exported
    assert row == await server.json("GET", f"/v1/tasks/{TASK.key}")
    assert row["verifier"] == await server.json("GET", f"/v1/verifiers/{row['verifier_id']}")
    await server.json("GET", "/v1/tasks/no-such-task", 404)
    wrong = {"task_keys": TASK.key, "data_version": "v2"}
    assert (await server.json("GET", "/v1/tasks", params=wrong))["total"] == 0


async def test_an_export_and_a_list_are_the_same_rows_of_a_dataset(server: FleetServer) -> None:
    listed = (await server.json("GET", "/v1/tasks"))["tasks"]
    tasks = [task for row in listed if (task := find_task(row["key"]))]
    from_export, from_list = Reading(), Reading()
    exported = list(from_export.rows_of(tasks_document(tasks)["tasks"]))
    assert exported == list(from_list.rows_of(listed))
    assert len(exported) == len(listed)
    assert (from_export.problems, from_list.problems) == ([], [])
    assert not from_export.ignored_fields


async def test_a_changed_task_keeps_what_was_not_changed(server: FleetServer) -> None:
    path = f"/v1/tasks/{TASK.key}"
    before = await server.json("GET", path)
    changed = await server.json("PUT", path, json={"prompt": "Please.", "metadata": {"a": 1}})
    assert changed == before | {"prompt": "Please.", "metadata": {"a": 1}}
    assert await server.json("GET", path) == changed
    await server.json("PUT", path, json={"verifier_code": "def verify(env): return 1"})
    made = await server.make(data_key=TASK.key)
    graded = await execute(server, made["instance_id"], key=TASK.key)
    assert graded["error"]["type"] == "VerifierNotRegistered"


async def test_an_added_task_is_listed_and_graded_by_a_known_source(server: FleetServer) -> None:
    source = task_row(TASK)["verifier_code"]
    assert isinstance(source, str)
    new = {"key": "mine", "prompt": "Do it.", "env_id": "booking", "verifier_func": source}
    await server.json("POST", "/v1/tasks", json=new)
    listed = await server.json("GET", "/v1/tasks", params={"env_key": "booking"})
    assert [task["key"] for task in listed["tasks"]].count("mine") == 1
    made = await server.make(data_key=TASK.key)
    assert (await execute(server, made["instance_id"], key="mine"))["result"] == 0
    graded = await execute(server, made["instance_id"], key="mine", bundle=bundle(source))
    assert graded["result"] == 0
    await server.json("POST", "/v1/tasks", 400, json=new | {"env_id": "nowhere"})


async def test_sessions_are_counted(server: FleetServer) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}] * 2, "metadata": {"score": 1}}
    first = await server.json("POST", "/v1/sessions/ingest", json=body)
    assert (first["created_new_session"], first["message_count"]) == (True, 2)
    more = body | {"session_id": first["session_id"]}
    second = await server.json("POST", "/v1/sessions/ingest", json=more)
    assert (second["created_new_session"], second["message_count"]) == (False, 4)
    await server.json("POST", "/v1/sessions/ingest", 422, json={"messages": "none"})
    assert (await server.json("POST", "/v1/traces/jobs", json={"name": "a"}))["name"] == "a"
