import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import trainer.attempt.sinks.push as push_module
from hillclimb.protocol.events import RunWarning
from tests.trainer.attempt.sinks.ingest import Ingest, serving
from trainer.attempt.sinks.journal import EventJournal
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.sinks.push import Push

WAIT_S = 20.0


@pytest.fixture
def ingest(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ingest]:
    monkeypatch.setattr(push_module, "FIRST_WAIT_S", 0.01)
    with serving() as service:
        yield service


def nobody() -> None:
    raise AssertionError("not superseded")


def open_journal(
    path: Path, ingest: Ingest, on_superseded: Callable[[], None] = nobody
) -> EventJournal:
    file = JsonlFile(path)
    return EventJournal(
        file, [Push(path, url=ingest.url, token="tok", on_superseded=on_superseded)]
    )


def warn(journal: EventJournal, count: int) -> None:
    for _ in range(count):
        journal.emit(RunWarning(step=0, code="test", message="m"))


def test_every_event_arrives_once_and_in_order(tmp_path: Path, ingest: Ingest) -> None:
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 1203)
    assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == list(range(1, 1204))
    assert set(ingest.tokens) == {"Bearer tok"}


@pytest.mark.parametrize("status", [401, 422, 429, 500, 503])
def test_a_service_that_refuses_for_a_while_gets_everything_later(
    tmp_path: Path, ingest: Ingest, status: int
) -> None:
    ingest.answers = [(status, {"detail": "not now"})] * 3
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 2)
    assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == [1, 2]


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (422, {"code": "invalid", "detail": "/events/6/code: too long."}),
        (400, {"code": "malformed", "detail": "The body is not JSON."}),
        (413, {"code": "too_large", "detail": "The body may have at most 9 bytes."}),
        (413, {}),
    ],
)
def test_an_event_that_is_refused_for_good_is_replaced_and_the_others_arrive(
    tmp_path: Path, ingest: Ingest, status: int, body: dict[str, object]
) -> None:
    ingest.poison = {7: (status, body), 40: (status, body)}
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 50)
    assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == list(range(1, 51))
    assert [event.trainer_seq for event in ingest.refused] == [7, 40]
    assert {event.refused_type for event in ingest.refused} == {"run.warning"}
    assert str(body.get("detail", "413")) in ingest.refused[0].message
    assert len((tmp_path / "events.jsonl").read_bytes().splitlines()) == 50


@pytest.mark.parametrize("code", ["unsupported_schema", "unknown_token", None])
def test_what_another_service_would_take_is_repeated(
    tmp_path: Path, ingest: Ingest, code: str | None
) -> None:
    ingest.answers = [(422, {"code": code})] * 3
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 2)
    assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == [1, 2]
    assert ingest.refused == []


def test_a_service_that_takes_no_placeholder_either_gets_all_later(
    tmp_path: Path, ingest: Ingest
) -> None:
    ingest.answers = [(422, {"code": "invalid"})] * 4
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 1)
    assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == [1]
    assert ingest.refused == []


def test_an_answer_that_makes_no_sense_is_tried_again(tmp_path: Path, ingest: Ingest) -> None:
    ingest.answers = [(200, {"nonsense": True})]
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 1)
    assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == [1]


def test_what_the_service_did_not_store_of_a_batch_is_sent_again(
    tmp_path: Path, ingest: Ingest
) -> None:
    ingest.most = 7
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 20)
    assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == list(range(1, 21))


def test_a_restart_sends_only_what_the_service_lacks(tmp_path: Path, ingest: Ingest) -> None:
    path = tmp_path / "events.jsonl"
    for _ in range(2):
        journal = open_journal(path, ingest)
        warn(journal, 700)
        assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == list(range(1, 1401))


def test_events_that_the_service_lost_are_sent_again(tmp_path: Path, ingest: Ingest) -> None:
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 600)
    ingest.answers = [(500, {})]
    warn(journal, 1)
    assert ingest.failed.wait(WAIT_S)
    ingest.seqs.clear()
    warn(journal, 1)
    assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == list(range(1, 603))


def test_a_superseded_attempt_is_told_once_and_sends_nothing_more(
    tmp_path: Path, ingest: Ingest
) -> None:
    told = threading.Event()
    ingest.answers = [(409, {"code": "attempt_superseded", "status": 409})]
    journal = open_journal(tmp_path / "events.jsonl", ingest, told.set)
    warn(journal, 1)
    assert told.wait(WAIT_S)
    warn(journal, 1)
    assert not journal.close(drain_s=WAIT_S)
    assert ingest.seqs == []
    assert len(ingest.tokens) == 1


def test_another_conflict_is_not_taken_for_it(tmp_path: Path, ingest: Ingest) -> None:
    ingest.answers = [(409, {"code": "busy"}), (409, {"detail": "attempt_superseded?"})]
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 1)
    assert journal.close(drain_s=WAIT_S)
    assert ingest.seqs == [1]


def test_a_service_that_is_gone_delays_the_end_by_no_more_than_the_drain(
    tmp_path: Path, ingest: Ingest
) -> None:
    ingest.answers = [(503, {})] * 10_000
    journal = open_journal(tmp_path / "events.jsonl", ingest)
    warn(journal, 1)
    assert not journal.close(drain_s=0.05)
