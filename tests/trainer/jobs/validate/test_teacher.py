"""Teachers over HTTP, in both protocols, and all that can go wrong with one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hillclimb.process.network.addresses import OWN_MACHINE_HOSTS
from hillclimb.protocol.validation import Reason, TaskVerdict
from hillclimb.spec.preflight.preflight import TeacherSpec
from tests.trainer.jobs.validate.runs import Validation
from tests.trainer.jobs.validate.teacher_server import GARBAGE, TeacherServer, teaching
from trainer.errors import SpecError
from trainer.jobs.validate.endpoint import Endpoint
from trainer.jobs.validate.errors import TeacherBudgetExhausted

OVERLOADED = (529, {}, b"{}")
LATER = (429, {"Retry-After": "0"}, b"{}")


@pytest.fixture(params=["openai", "anthropic"])
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TeacherServer]:
    with teaching(Validation(tmp_path / "tasks").tasks()) as running:
        yield running


def a_run(
    root: Path, server: TeacherServer, protocol: str = "openai", **teacher: Any
) -> Validation:
    section = {"type": protocol, "base_url": server.url, "model": "scripted", **teacher}
    return Validation(root, teacher=section)


async def test_a_teacher_that_solves_everything_makes_every_task_valid(
    tmp_path: Path, server: TeacherServer, protocol: str
) -> None:
    run = a_run(tmp_path, server, protocol, temperature=0.5, max_output_tokens=77)
    found = await run.run()
    assert found.summary.verdicts == {"valid": 6}
    assert all(row.teacher is not None and row.teacher.passed == 1 for row in run.rows())
    assert found.teacher is not None
    assert found.teacher.num_requests == len(server.requests) >= 6 * 3
    assert found.teacher.input_tokens == 100 * len(server.requests)
    assert found.teacher.output_tokens == 10 * len(server.requests)
    asked = server.requests[0]
    assert (asked["model"], asked["temperature"], asked["max_tokens"]) == ("scripted", 0.5, 77)
    assert "CURRENT_DATE: 2026-" in str(asked.get("system") or asked["messages"][0]["content"])
    path = {"openai": "/chat/completions", "anthropic": "/v1/messages"}[protocol]
    assert set(server.paths) == {path}


async def test_what_the_teacher_fails_is_excluded_unless_that_is_not_required(
    tmp_path: Path, server: TeacherServer, protocol: str
) -> None:
    server.gives_up = lambda task: task.env_key == "github"
    run = a_run(tmp_path / "a", server, protocol, n=2)
    found = await run.run()
    assert found.summary.environments == {"booking": {"valid": 3}, "github": {"excluded": 3}}
    assert found.summary.reasons == {"teacher_failed": 3}
    (row, *_) = [row for row in run.rows() if row.verdict is TaskVerdict.EXCLUDED]
    assert row.detail == "the teacher passed in none of 2 tries"
    lenient = await a_run(tmp_path / "b", server, protocol, required=False).run()
    assert lenient.summary.verdicts == {"valid": 6}


async def test_a_later_try_that_passes_is_enough(tmp_path: Path, server: TeacherServer) -> None:
    seen: set[str] = set()

    def only_at_first(task: Any) -> bool:
        is_first = task.key not in seen
        seen.add(task.key)
        return is_first

    server.gives_up = only_at_first
    run = a_run(tmp_path, server, n=3)
    found = await run.run()
    assert found.summary.verdicts == {"valid": 6}
    tries = [row.teacher for row in run.rows()]
    assert all(each is not None and (each.failed, each.passed) == (1, 1) for each in tries)


async def test_busy_endpoints_are_asked_again_when_they_say(
    tmp_path: Path, server: TeacherServer, protocol: str
) -> None:
    server.faults = [LATER, (429, {"Retry-After": "0.2"}, b"{}"), (503, {}, b"no"), LATER]
    began = time.monotonic()
    found = await a_run(tmp_path, server, protocol, concurrency=1).run()
    assert 0.2 <= time.monotonic() - began < 20.0
    assert found.summary.verdicts == {"valid": 6}
    assert found.teacher is not None
    assert found.teacher.num_retries == 4


async def test_an_endpoint_that_stays_away_or_answers_garbage_leaves_tasks_unknown(
    tmp_path: Path, server: TeacherServer, protocol: str
) -> None:
    server.faults = [(200, {}, GARBAGE), (400, {}, b"too long"), (200, {}, b'{"choices": []}')]
    run = a_run(tmp_path / "a", server, protocol, concurrency=1)
    found = await run.run()
    assert found.summary.verdicts == {"unknown": 3, "valid": 3}
    assert found.summary.reasons == {"teacher_unavailable": 3}
    details = [row.detail or "" for row in run.rows() if row.reason is Reason.TEACHER_UNAVAILABLE]
    assert "something that is not a JSON object" in details[0]
    assert "answers 400: too long" in details[1]
    assert "is not a " in details[2]

    server.faults = [OVERLOADED] * 100
    gone = await a_run(tmp_path / "b", server, protocol, max_retries=0).run()
    assert gone.summary.verdicts == {"unknown": 6}
    assert gone.summary.coverage == 0.0


async def test_arguments_that_are_no_json_are_an_error_that_the_teacher_sees(
    tmp_path: Path, server: TeacherServer, protocol: str
) -> None:
    server.damages_first_call = True
    found = await a_run(tmp_path, server, protocol).run()
    assert found.summary.verdicts == {"valid": 6}
    assert "the arguments are no JSON object" in str(server.requests)


async def test_the_budget_ends_the_asking_and_what_was_not_asked_is_unknown(
    tmp_path: Path, server: TeacherServer
) -> None:
    run = a_run(tmp_path / "a", server, max_requests=9, concurrency=1)
    found = await run.run()
    assert len(server.requests) == 9
    known = found.summary.verdicts["valid"]
    assert 1 <= known <= 3
    assert found.summary.verdicts["unknown"] == 6 - known
    assert {row.detail for row in run.rows() if row.reason is not None} == {
        "validation.teacher.max_requests are used up"
    }
    server.requests.clear()
    await a_run(tmp_path / "b", server, max_tokens=500, concurrency=1).run()
    assert len(server.requests) == 5


async def test_the_key_comes_from_the_environment_and_goes_as_the_protocol_wants(
    tmp_path: Path, server: TeacherServer, protocol: str
) -> None:
    run = a_run(tmp_path, server, protocol, api_key_env="RUN_SECRET_TEACHER")
    with pytest.raises(SpecError, match="names RUN_SECRET_TEACHER, which is not set"):
        run.validator()
    await run.run(attempt=2, environ={"RUN_SECRET_TEACHER": "k-1"})
    header = {"openai": ("authorization", "Bearer k-1"), "anthropic": ("x-api-key", "k-1")}
    name, value = header[protocol]
    assert {each[name] for each in server.headers} == {value}
    assert "k-1" not in run.dir(2).events.read_text()


async def test_an_endpoint_that_refuses_the_key_ends_the_run_and_never_shows_it(
    tmp_path: Path, server: TeacherServer
) -> None:
    key = "k-" + "7" * 60
    server.faults = [(401, {}, f"Incorrect API key: {key}".encode())] * 50
    run = a_run(tmp_path, server, api_key_env="RUN_SECRET_TEACHER")
    with pytest.raises(
        SpecError, match=r"rejects requests: .* answers 401: Incorrect API key: \[the key\]"
    ):
        await run.run(environ={"RUN_SECRET_TEACHER": key})
    found = run.event()
    assert not found.complete
    assert found.summary.reasons == {"not_reached": 6}

    server.faults = [(400, {}, b"." * 190 + f"{key} and more".encode())] * 50
    await run.run(attempt=2, environ={"RUN_SECRET_TEACHER": key})
    details = {row.detail for row in run.rows(2)}
    assert all("7777" not in str(detail) for detail in details), "cut off within the key"


@pytest.mark.parametrize("opened", ["none", "10.0.0.0/8 teacher.internal"])
async def test_a_server_that_the_operator_does_not_open_gets_no_request(
    tmp_path: Path, server: TeacherServer, opened: str
) -> None:
    """Not even as an experiment, and nothing that it would say reaches the run's end."""
    server.faults = [(401, {}, b"secret of an inner host")] * 50
    run = a_run(tmp_path, server)
    run.spec = run.spec.model_copy(update={"experimental": True})
    with pytest.raises(SpecError, match=r"no public address.*HILLCLIMB_RUN_PRIVATE_HOSTS") as end:
        await run.run(environ={"HILLCLIMB_RUN_PRIVATE_HOSTS": opened})
    assert server.requests == []
    assert "inner host" not in str(end.value)


async def test_a_refusal_midway_ends_the_asking_and_keeps_what_was_found(
    tmp_path: Path, server: TeacherServer
) -> None:
    good: list[Any] = []

    def revoked_after_two(task: Any) -> bool:
        good.append(task.key)
        if len(set(good)) == 3:
            server.faults = [(401, {}, b"expired")]
        return False

    server.gives_up = revoked_after_two
    run = a_run(tmp_path, server, concurrency=1)
    found = await run.run()
    assert found.complete
    assert found.summary.verdicts == {"valid": 2, "unknown": 4}
    assert found.summary.reasons == {"teacher_unavailable": 4}
    assert all(
        "the teacher answered before and rejects requests now:" in str(row.detail)
        for row in run.rows()
        if row.verdict is TaskVerdict.UNKNOWN
    )


CUT = [
    ("openai", "length", "cut off at validation.teacher.max_output_tokens"),
    ("openai", "content_filter", "filter blocked the teacher's answer"),
    ("openai", "refusal", "refuses to answer"),
    ("anthropic", "max_tokens", "cut off at validation.teacher.max_output_tokens"),
    ("anthropic", "model_context_window_exceeded", "does not fit the teacher's context"),
    ("anthropic", "refusal", "refuses to answer"),
]


@pytest.mark.parametrize(("protocol_", "reason", "detail"), CUT)
async def test_a_teacher_that_could_not_finish_its_answer_has_not_failed(
    tmp_path: Path, server: TeacherServer, protocol_: str, reason: str, detail: str
) -> None:
    server.cut = lambda task: reason if task.env_key == "github" else None
    run = a_run(tmp_path, server, protocol_, n=2)
    found = await run.run()
    assert found.summary.environments == {"booking": {"valid": 3}, "github": {"unknown": 3}}
    assert found.summary.reasons == {"teacher_cut_off": 3}
    rows = [row for row in run.rows() if row.reason is Reason.TEACHER_CUT_OFF]
    assert all(detail in str(row.detail) for row in rows)
    assert all(row.teacher is not None and row.teacher.unknown == 2 for row in rows)


async def test_a_call_that_was_cut_off_is_not_made_and_the_teacher_may_go_on(
    tmp_path: Path, server: TeacherServer, protocol: str
) -> None:
    server.cuts_first_call = True
    found = await a_run(tmp_path, server, protocol).run()
    assert found.summary.verdicts == {"valid": 6}, "it passes all the same"
    assert "the arguments are no JSON object" in str(server.requests)


async def test_the_newer_name_of_the_limit_is_taken_where_the_older_is_refused(
    tmp_path: Path, server: TeacherServer
) -> None:
    server.has_newer_limit = True
    found = await a_run(tmp_path, server, concurrency=1, max_output_tokens=99).run()
    assert found.summary.verdicts == {"valid": 6}
    limits = [each.get("max_completion_tokens") for each in server.requests]
    assert limits == [None, *[99] * (len(limits) - 1)]


async def test_an_endpoint_that_stays_silent_is_let_alone_after_a_while(
    tmp_path: Path, server: TeacherServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer.jobs.validate.endpoint.MAX_SILENT", 3)
    server.faults = [OVERLOADED] * 100
    run = a_run(tmp_path, server, max_retries=0, concurrency=1)
    found = await run.run()
    assert len(server.requests) == 3
    assert found.summary.verdicts == {"unknown": 6}
    assert "3 requests in a row had no answer" in str(run.rows()[-1].detail)


async def test_requests_that_an_episode_gives_up_count_as_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("trainer.jobs.validate.endpoint.MAX_SILENT", 3)
    asked = num_open = 0

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked, num_open
        asked, num_open = asked + 1, num_open + 1
        await reader.read()
        writer.close()
        await writer.wait_closed()
        num_open -= 1

    silent = await asyncio.start_server(hang, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    spec = TeacherSpec(base_url=url, model="m")
    endpoint = Endpoint(spec=spec, headers={}, allowed=OWN_MACHINE_HOSTS)
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await endpoint.post("/chat/completions", {})
    with pytest.raises(
        TeacherBudgetExhausted, match=r"3 requests in a row had no answer.*episode was over"
    ):
        async with asyncio.timeout(0.2):
            await endpoint.post("/chat/completions", {})
    assert asked == 3
    await endpoint.close()
    silent.close()
    while num_open:  # noqa: ASYNC110 - else the loop ends before them
        await asyncio.sleep(0.01)


async def test_one_budget_is_for_all_attempts_of_a_run(
    tmp_path: Path, server: TeacherServer
) -> None:
    run = a_run(tmp_path, server, max_requests=9, concurrency=1)
    first = await run.run()
    assert first.teacher is not None
    assert first.teacher.num_requests == len(server.requests) == 9
    second = await run.run(attempt=2)
    assert len(server.requests) == 9, "none is left"
    assert second.teacher == first.teacher
    run.spec = a_run(tmp_path, server, max_requests=12, concurrency=1).spec
    third = await run.run(attempt=3)
    assert len(server.requests) == 12
    assert third.teacher is not None
    assert third.teacher.num_requests == 12


@pytest.mark.parametrize("asked", ["nan", "soon", "-1"])
async def test_a_pause_that_is_no_number_of_seconds_is_not_asked_for(
    tmp_path: Path, server: TeacherServer, asked: str
) -> None:
    server.faults = [(429, {"Retry-After": asked}, b"{}")]
    found = await a_run(tmp_path, server, concurrency=1).run()
    assert found.summary.verdicts == {"valid": 6}


async def test_a_teacher_that_never_ends_fails_after_its_turns(
    tmp_path: Path, server: TeacherServer
) -> None:
    run = a_run(tmp_path, server, max_turns=1)
    found = await run.run()
    assert found.summary.reasons == {"teacher_failed": 6}
