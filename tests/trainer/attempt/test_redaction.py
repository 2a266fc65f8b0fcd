"""Secrets leave no machine, and nothing else is touched."""

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.blobs.disk import DiskStore
from hillclimb.process.exit_report import LOG_TAIL_BYTES, log_tail
from hillclimb.process.redactor import Redactor
from hillclimb.process.tail_upload import TailUploader
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import EVENTS, TrainerEnded
from hillclimb.protocol.rundir import AttemptDir
from trainer.attempt.sinks.jsonl import JsonlFile
from trainer.attempt.sinks.segments import Segments

SECRET = 'p@ss "word"/+é'
ENVIRON = {
    "HILLCLIMB_SECRET_NAMES": "PLAIN,GONE",
    "PLAIN": SECRET,
    "FLEET_API_KEY": "fleet-key-1",
    "HILLCLIMB_ATTEMPT_TOKEN": "hca_token",
    "PATH": "/usr/local/bin",
    "KEYBOARD": "qwerty-layout",
}


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        quote(SECRET, safe=""),
        base64.b64encode(SECRET.encode()).decode(),
        "fleet-key-1",
        "Bearer hca_token",
    ],
)
def test_a_secret_is_masked_however_it_is_written(written: str) -> None:
    masked = Redactor.of(ENVIRON).text(f"before {written} after")
    assert len(masked.encode()) == len(f"before {written} after".encode())
    assert masked.startswith("before ")
    assert masked.endswith(" after")
    for secret in (SECRET, "fleet-key-1", "hca_token", written.strip('"')):
        assert secret not in masked


def test_what_is_no_secret_stays() -> None:
    line = "found qwerty-layout in /usr/local/bin for booking"
    assert Redactor.of(ENVIRON | {"SORT_KEY": "booking"}).text(line) == line


def test_each_line_of_a_long_secret_is_masked_by_itself() -> None:
    mask = Redactor(("-----BEGIN-----\nMIIabcdefgh\nxyz",))
    assert mask.text("MIIabcdefgh") == "***********"
    assert mask.text("xyz") == "xyz", "too short to be told from text"


@given(st.binary(max_size=200), st.text(min_size=6, max_size=20))
def test_masking_keeps_length_and_leaves_no_secret(data: bytes, secret: str) -> None:
    mask, whole = Redactor((secret,)), data + secret.encode(errors="replace") + data
    masked = mask.raw(whole)
    assert len(masked) == len(whole)
    assert mask.raw(masked) == masked or "*" in secret


def test_events_stay_events_also_where_a_secret_is_a_number(tmp_path: Path) -> None:
    mask = Redactor(("1234567", "wandb-key"))
    file = JsonlFile(tmp_path / "events.jsonl", mask)
    message = "401 for wandb-key and 1234567"
    file.append(
        TrainerEnded(
            trainer_seq=1,
            at="2026-01-01T00:00:00Z",
            step=1234567,
            reason=ReasonCode.COMPLETED,
            message=message,
            training_seconds=1.0,
        )
    )
    file.close()
    event = EVENTS.validate_json((tmp_path / "events.jsonl").read_bytes())
    assert isinstance(event, TrainerEnded)
    assert event.step == 1234567
    assert event.message == "401 for ********* and *******"


def test_log_segments_and_the_tail_fit_together_when_secrets_are_masked(tmp_path: Path) -> None:
    mask, store = Redactor(("the-secret",)), DiskStore(tmp_path / "blobs")
    where = AttemptDir(tmp_path / "runs" / "run_1", 1)
    where.path.mkdir(parents=True)
    where.log.write_text("one the-secret\n")
    assert Segments(store, where, mask, interval_s=60.0).close(10.0)
    with where.log.open("a") as log:
        log.write("two the-secret\nthree\n")
    TailUploader(store, mask).upload_tail("run_1", where)
    stored = b"".join(store.get(key) for key in store.list("runs/run_1/attempt-1/logs"))
    assert stored == b"one **********\ntwo **********\nthree\n"


AWKWARD = "ab/cd+ef gh\"ij'kl\\mn"
LONG_ENOUGH = {
    "as a path of a URL": quote(AWKWARD),
    "with small digits": re.sub("%..", lambda found: found[0].lower(), quote(AWKWARD, safe="")),
    "as a form": quote_plus(AWKWARD),
    "base64 without padding": base64.b64encode(AWKWARD.encode()).decode().rstrip("="),
    "base64 of URLs": base64.urlsafe_b64encode(b"??>>" + AWKWARD.encode()).decode(),
    "repr": repr(AWKWARD),
    "JSON within JSON": json.dumps(json.dumps({"key": AWKWARD})),
}


@pytest.mark.parametrize("how", LONG_ENOUGH)
def test_a_secret_is_masked_where_other_code_has_written_it(how: str) -> None:
    known = "??>>" + AWKWARD if how == "base64 of URLs" else AWKWARD
    masked = Redactor((known,)).text(LONG_ENOUGH[how])
    assert masked.count("*") >= len(AWKWARD)
    for part in ("ab/", "ab%2", "mn", AWKWARD[:4]):
        assert part not in masked


@pytest.mark.parametrize(
    "name",
    ["RUN_SECRET_BOOKING", "SMTP_PASS", "OPENAIAPIKEY", "database_url", "lower_case_token"],
)
def test_a_variable_whose_name_says_so_is_secret(name: str) -> None:
    assert Redactor.of({name: "do-not-tell"}).text("it is do-not-tell") == "it is ***********"


def test_a_secret_across_the_beginning_of_a_tail_shows_no_end(tmp_path: Path) -> None:
    log, secret = tmp_path / "train.log", "secret-value-0123456789"
    log.write_bytes(b"x" * 40_000 + secret.encode() + b"y" * (LOG_TAIL_BYTES - 10) + b"\nlast\n")
    said = log_tail(log, Redactor((secret,)))
    assert said.endswith("last")
    assert "*" in said
    assert "0123456789" not in said
    assert "456789" not in said


def test_events_that_are_mirrored_are_those_that_were_written(tmp_path: Path) -> None:
    """They are masked already: a number in the place of a secret must stay a number."""
    mask, store = Redactor(("123456",)), DiskStore(tmp_path / "blobs")
    where = AttemptDir(tmp_path / "runs" / "run_1", 1)
    where.path.mkdir(parents=True)
    where.events.write_bytes(mask.json_line(b'{"trainer_seq": 1, "tokens": 1234567}\n'))
    where.log.write_text("tokens 1234567\n")
    assert Segments(store, where, mask, interval_s=60.0).close(10.0)
    (events,) = store.list("runs/run_1/attempt-1/events")
    assert json.loads(store.get(events)) == {"trainer_seq": 1, "tokens": 1234567}
    (log,) = store.list("runs/run_1/attempt-1/logs")
    assert store.get(log) == b"tokens ******7\n"
