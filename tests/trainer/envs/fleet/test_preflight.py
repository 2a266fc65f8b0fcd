"""Before anything is loaded: the platform is there, takes our key, and models can do the tasks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import psutil
import pytest

from hillclimb.protocol.rundir import AttemptDir, PidRecord, run_tag, run_tags
from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import spec_body
from tests.trainer.envs.fleet.scene import TASK, with_payload
from tests.trainer.envs.fleet_server import API_KEY, fleet_server
from tests.trainer.envs.odd_server import Said, odd_server
from trainer.envs.choose import check_provider
from trainer.envs.fleet import sweep
from trainer.errors import EnvironmentOutage, SpecError
from trainer.inputs.tasks.modality import refuse_screens


def spec(url: str) -> RunSpec:
    environment = {"provider": "fleet", "fleet": {"base_url": url}}
    return RunSpec.model_validate(spec_body(environment=environment))


async def test_a_platform_that_takes_the_key_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_API_KEY", API_KEY)
    async with fleet_server() as server:
        await check_provider(spec(server.url))
        assert (await server.stats())["requests"]["account"] == 1


async def test_what_earlier_attempts_left_is_deleted_before_this_one_creates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the run has more instances than it may, and nobody deletes those of a lost runner."""
    monkeypatch.setenv("FLEET_API_KEY", API_KEY)
    async with fleet_server() as server:
        tags = [run_tag("run_1", 1), run_tag("run_1", 2, "prompts"), run_tag("run_1", 3), "other"]
        for tag in tags:
            await server.make(run_id=tag)
        await check_provider(spec(server.url), AttemptDir(tmp_path / "run_1", 3))
        left = [row["run_id"] for row in await server.json("GET", "/v1/env/instances")]
        assert sorted(left) == sorted(tags[2:]), "its own and those of others stay"
        # A platform without the batch deletion is no reason to end the run.
        await server.faults({"on": ["delete"], "error_rate": 1.0, "error_status": 503})
        monkeypatch.setattr(sweep, "OPERATION_S", 0.3)
        await check_provider(spec(server.url), AttemptDir(tmp_path / "run_1", 2))


async def test_a_refused_key_is_the_users_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_API_KEY", "of somebody else")
    async with fleet_server() as server:
        with pytest.raises(SpecError, match="refuses the key in FLEET_API_KEY") as caught:
            await check_provider(spec(server.url))
    assert "of somebody else" not in str(caught.value)


async def test_a_platform_that_does_not_answer_pauses_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FLEET_API_KEY", API_KEY)
    monkeypatch.setattr(sweep, "CHECK_S", 0.5)
    async with fleet_server() as server:
        url = server.url
    with pytest.raises(EnvironmentOutage, match="does not answer: unreachable"):
        await check_provider(spec(url))


@pytest.mark.parametrize("status", [404, 410])
async def test_a_platform_without_an_account_route_is_said_to_have_answered(
    status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_API_KEY", API_KEY)
    async with odd_server(Said(status=status, body=b'{"detail": "no such route"}')) as (url, _):
        with pytest.raises(EnvironmentOutage) as caught:
            await check_provider(spec(url))
    assert str(caught.value).startswith(
        f"{url} answers the request for the account (GET /v1/account) with "
    )
    assert str(caught.value).endswith(f" ({status}): no such route")


async def test_a_run_without_the_provider_asks_nobody() -> None:
    await check_provider(RunSpec.model_validate(spec_body()))


@pytest.mark.parametrize("modality", ["computer_use", "browser_use"])
def test_tasks_that_need_a_screen_are_refused_when_they_are_loaded(modality: str) -> None:
    refuse_screens([TASK, with_payload()])
    with pytest.raises(
        SpecError, match=f"modality {modality}, for which the model needs screenshots"
    ):
        refuse_screens([TASK, with_payload(task_modality=modality)])


async def test_a_sweep_takes_every_part_of_an_attempt_and_no_other_attempt(tmp_path: Path) -> None:
    async with fleet_server() as server:
        attempt = tmp_path / "attempt-1"
        attempt.mkdir()
        (attempt / "spec.json").write_text(spec(server.url).model_dump_json())
        for tag in (*run_tags(tmp_path.name, 1), run_tag(tmp_path.name, 2)):
            await server.make(run_id=tag)
        environ = {"FLEET_API_KEY": API_KEY}
        swept = await asyncio.to_thread(sweep.sweep_run, tmp_path, 1, environ)
        assert swept == sweep.InstanceSweep(num_deleted=2, skipped=())
        assert (await server.stats())["instances"]["running"] == 1


def test_a_run_directory_without_attempts_or_of_another_provider_is_swept_already(
    tmp_path: Path,
) -> None:
    nothing = sweep.InstanceSweep(num_deleted=0, skipped=())
    assert sweep.sweep_run(tmp_path, None, {}) == nothing
    attempt = tmp_path / "attempt-2"
    attempt.mkdir()
    (attempt / "spec.json").write_text(RunSpec.model_validate(spec_body()).model_dump_json())
    assert sweep.sweep_run(tmp_path, None, {}) == nothing


async def test_a_sweep_of_a_run_leaves_those_alone_that_may_still_train(tmp_path: Path) -> None:
    gone = await asyncio.create_subprocess_exec("true")
    await gone.wait()
    here = psutil.Process()
    ends = {
        1: ("exit.json", b"{}"),
        2: ("pid.json", PidRecord(pid=here.pid, started_at=here.create_time())),
        3: ("note.txt", b"neither"),
        4: ("pid.json", PidRecord(pid=gone.pid, started_at=here.create_time())),
        # Another process has its number now.
        5: ("pid.json", PidRecord(pid=here.pid, started_at=here.create_time() - 1000.0)),
    }
    async with fleet_server() as server:
        for number, (name, content) in ends.items():
            where = AttemptDir(tmp_path, number)
            where.path.mkdir()
            where.spec.write_text(spec(server.url).model_dump_json())
            said = content if isinstance(content, bytes) else content.model_dump_json().encode()
            (where.path / name).write_bytes(said)
            await server.make(run_id=run_tag(tmp_path.name, number))
        environ = {"FLEET_API_KEY": API_KEY}
        swept = await asyncio.to_thread(sweep.sweep_run, tmp_path, None, environ)
        assert swept == sweep.InstanceSweep(num_deleted=3, skipped=(2, 3))
        left = await server.json("GET", "/v1/env/instances")
        assert {row["run_id"] for row in left} == {run_tag(tmp_path.name, n) for n in (2, 3)}
        named = await asyncio.to_thread(sweep.sweep_run, tmp_path, 2, environ)
        assert named == sweep.InstanceSweep(num_deleted=1, skipped=())


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        (Said(status=302, headers={"location": "https://login.example.org"}), "leads to https://l"),
        (Said(body=b"[]"), "is no JSON object"),
        (Said(body=b'{"hello": "world"}'), "tells of no account"),
    ],
)
async def test_what_is_no_platform_is_the_users_to_mend(
    said: Said, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEET_API_KEY", API_KEY)
    async with odd_server(said) as (url, _):
        with pytest.raises(SpecError, match=sentence):
            await check_provider(spec(url))
