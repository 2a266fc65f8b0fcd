"""The client against a service that misbehaves."""

import httpx
import pytest

from api.datasets.creation import MAX_ROUNDS
from api.datasets.work.process import WAIT_S
from api.settings import Settings
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem, ApiUnreachable, UnexpectedResponse
from hillclimb.client.resources.datasets import UPLOAD_TIMEOUT
from hillclimb.stack.state.connection import Connection
from tests.hillclimb.client.payloads import event_frame, run_json


def client_of(*answers: httpx.Response) -> Client:
    """A client whose requests get these answers, one each."""
    left = iter(answers)
    transport = httpx.MockTransport(lambda _request: next(left))
    return Client(Connection(url="http://service", api_key="hc_x"), transport)


def log_page(text: str, end: int, *, ended: bool = False, attempt: int = 1) -> httpx.Response:
    place = {"run_id": "run_1", "attempt": attempt, "has_more": False}
    return httpx.Response(200, json={**place, "text": text, "next_offset": end, "ended": ended})


def stream(*frames: str) -> httpx.Response:
    return httpx.Response(200, content="".join(frames).encode())


def test_a_run_of_another_version_of_the_service_is_a_sentence() -> None:
    unknown = httpx.Response(200, json=run_json(status="hibernating"))
    with (
        client_of(unknown) as client,
        pytest.raises(ApiUnreachable, match="cannot read the response of http://service: status"),
    ):
        client.run("run_1")


def test_a_run_is_printed_with_the_keys_and_values_that_came() -> None:
    sent = run_json(progress={"step": 3, "total": 9, "eta_s": 2.0, "phase": "eval"})
    with client_of(httpx.Response(200, json=sent)) as client:
        assert client.run("run_1").model_dump(mode="json") == sent


@pytest.mark.parametrize("body", [b"<html>", b"[]", b""])
def test_an_answer_that_is_no_document_is_a_sentence(body: bytes) -> None:
    with (
        client_of(httpx.Response(200, content=body)) as client,
        pytest.raises(ApiUnreachable, match="is not that of a Hillclimb service"),
    ):
        client.runs()


def test_a_service_whose_database_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hillclimb.client.client.RECONNECT_PAUSE_S", 0.0)
    first = stream(event_frame("a", {"text": "x\u2028y"}))
    last = stream(event_frame("b", {}, seq=2), "event: end\ndata: {}\n\n")
    away = httpx.Response(503, json={"code": "unavailable"})
    with client_of(first, away, away, last) as client:
        events = list(client.follow("run_1"))
    assert [(event.type, event.seq) for event in events] == [("a", 1), ("b", 2)]
    assert events[0].data == {"text": "x\u2028y"}


def test_a_stream_of_another_version_is_not_retried() -> None:
    with (
        client_of(stream("id: 1\nevent: a\ndata: {}\n\n")) as client,
        pytest.raises(UnexpectedResponse, match="cannot read the response of http://service: seq"),
    ):
        next(client.follow("run_1"))


def test_a_stream_that_is_refused_is_not_asked_for_again() -> None:
    refusal = httpx.Response(404, json={"code": "run_not_found"})
    with client_of(refusal) as client, pytest.raises(ApiProblem):
        next(client.follow("run_1"))


def test_a_log_is_followed_through_a_restart_of_the_service(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hillclimb.client.client.LOGS_PAUSE_S", 0.0)
    page = log_page
    away = httpx.Response(503, json={"code": "unavailable"})
    answers = (page("a", 1), page("", 1), away, page("b", 2, ended=True), page("", 2, ended=True))
    run = httpx.Response(200, json=run_json(attempt=1))
    with client_of(*answers, run) as client:
        assert [page.text for page in client.follow_logs("run_1")] == ["a", "b"]


def test_a_log_is_followed_through_every_attempt_until_the_run_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("hillclimb.client.client.LOGS_PAUSE_S", 0.0)
    asked: list[str | None] = []
    pages = {
        ("1", "0"): log_page("of the first\n", 7),
        ("1", "7"): log_page("", 7, ended=True),
        ("2", "0"): log_page("of the second\n", 5, attempt=2, ended=True),
        ("2", "5"): log_page("", 5, attempt=2, ended=True),
    }

    def answer(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/logs"):
            return httpx.Response(200, json=run_json(attempt=2))
        asked.append(request.url.params.get("attempt"))
        return pages[asked[-1] or "1", request.url.params["after"]]

    connection = Connection(url="http://service", api_key="hc_x")
    with Client(connection, httpx.MockTransport(answer)) as client:
        texts = [page.text for page in client.follow_logs("run_1")]
        assert texts == ["of the first\n", "of the second\n"]
        assert asked == [None, "1", "2", "2"]
        asked.clear()
        assert len(list(client.follow_logs("run_1", attempt=1))) == 1


@pytest.mark.parametrize("status", [300, 302, 304])
def test_only_an_answer_with_the_file_is_taken_for_it(status: int) -> None:
    """A proxy before the service may send one to a page where one logs in."""
    with (
        client_of(httpx.Response(status, content=b"<html>")) as client,
        pytest.raises(ApiUnreachable, match=f"responded with status {status} instead of the file"),
    ):
        list(client.checkpoint_file("run_1", 10, "policy/model.safetensors"))
    with (
        client_of(httpx.Response(status, content=b"<html>")) as client,
        pytest.raises(ApiUnreachable, match=f"responded with status {status} instead of the file"),
    ):
        list(client.datasets.file("fleet", "tasks"))


def test_a_service_that_stays_away_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hillclimb.client.stream.outages.RECONNECT_FOR_S", 0.0)
    away = httpx.Response(503, json={"code": "unavailable"})
    with client_of(away) as client, pytest.raises(ApiUnreachable, match="does not respond"):
        next(client.follow_logs("run_1"))


def test_whatever_is_in_an_id_stays_in_its_place() -> None:
    """A rollout is named after its task, whose key may have anything in it."""
    paths: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        paths.append(request.url.raw_path.decode())
        return httpx.Response(404, json={"code": "not_found"})

    connection = Connection(url="http://service", api_key="hc_x")
    with Client(connection, httpx.MockTransport(refuse)) as client:
        for request in (
            lambda: client.trajectory("run_1", "1/0/eval/task#2?x/../y"),
            lambda: client.tokens("run_1", "a/..", turn=2),
            lambda: client.run(".."),
            lambda: client.run("run_1?x=1#y"),
        ):
            with pytest.raises(ApiProblem):
                request()
    assert paths == [
        "/v1/runs/run_1/trajectories/1%2F0%2Feval%2Ftask%232%3Fx%2F..%2Fy",
        "/v1/runs/run_1/tokens/a%2F..?turn=2",
        "/v1/runs/%2E%2E",
        "/v1/runs/run_1%3Fx%3D1%23y",
    ]


def test_an_upload_is_waited_for_as_long_as_the_service_may_work_on_it() -> None:
    deadline_s = Settings.model_fields["dataset_deadline_s"].default
    assert UPLOAD_TIMEOUT.read is not None
    assert UPLOAD_TIMEOUT.read > MAX_ROUNDS * (WAIT_S + deadline_s)
