import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hillclimb.blobs.base import StoreError
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import EVENTS, Event, ProbeCompleted, TrainerEnded
from hillclimb.protocol.rundir import AttemptDir, ExitRecord
from tests.trainer.attempt.sinks.ingest import serving
from tests.trainer.fixtures.forked import run_forked
from tests.trainer.fixtures.short_run import MAX_TOKENS, short_spec
from tests.trainer.fixtures.tiny_model import write_tiny_model
from trainer.__main__ import main
from trainer.jobs import process
from trainer.jobs.process import EXIT_FAILED, EXIT_SUPERSEDED, ProcessOptions, run_attempt
from trainer.jobs.train.checkpoints import find_latest

WAIT_S = 120.0
LENGTHS = {"max_input_length": 3900, "max_generate_length": MAX_TOKENS, "max_sequence_length": 4000}


def launch(
    root: Path,
    spec: Mapping[str, object] | None,
    *,
    resume_from: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> ProcessOptions:
    path = root / "spec.json"
    if spec is not None:
        path.write_text(json.dumps(spec))
    return ProcessOptions(
        spec=path,
        run_dir=root / "runs" / "run_1",
        attempt=1,
        resume_from=resume_from,
        environ=environ or {},
    )


def a_spec(root: Path, **sections: dict[str, Any]) -> dict[str, Any]:
    model = write_tiny_model(root / "model", positions=4000)
    sections = {"rollout": {**LENGTHS, "n_samples_per_prompt": 2}, **sections}
    return short_spec(model, **sections).model_dump(mode="json")


def ended(where: AttemptDir) -> tuple[TrainerEnded, ExitRecord]:
    events: list[Event] = [
        EVENTS.validate_json(line) for line in where.events.read_bytes().splitlines()
    ]
    record = ExitRecord.model_validate_json(where.exit.read_bytes())
    last = events[-1]
    assert isinstance(last, TrainerEnded)
    assert record.last_trainer_seq == last.trainer_seq
    assert (record.reason, record.message) == (last.reason, last.message)
    return last, record


async def failed(
    root: Path, given: ProcessOptions, capsys: pytest.CaptureFixture[str]
) -> ExitRecord:
    assert await run_attempt(given) == EXIT_FAILED
    errors = capsys.readouterr().err
    assert "Traceback" not in errors
    assert sum(line.startswith("error: ") for line in errors.splitlines()) == 1
    return ended(given.dir)[1]


async def test_a_spec_with_mistakes_ends_in_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = {"name": "x", "data": {"env_keys": ["booking"], "sed": 1}}
    record = await failed(tmp_path, launch(tmp_path, spec), capsys)
    assert record.reason is ReasonCode.SPEC_REJECTED
    assert record.message == "/data/sed: unknown key 'data/sed'; did you mean 'seed'?"


async def test_wandb_online_without_a_key_is_refused_before_anything_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec: dict[str, Any] = {"name": "x", "data": {"env_keys": ["booking"]}}
    spec |= {"model": {"source": "/no/such"}}
    spec |= {"tracking": {"wandb": {"mode": "online"}}, "experimental": True}
    record = await failed(tmp_path, launch(tmp_path, spec), capsys)
    assert record.reason is ReasonCode.SPEC_REJECTED
    assert "WANDB_API_KEY is not set" in record.message


async def test_a_missing_spec_a_missing_model_and_a_missing_checkpoint_are_told_apart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = await failed(tmp_path, launch(tmp_path, None), capsys)
    assert "there is no spec" in record.message
    spec = {"name": "x", "data": {"env_keys": ["booking"]}, "model": {"source": "/no/such"}}
    record = await failed(tmp_path, launch(tmp_path, spec), capsys)
    assert record.reason is ReasonCode.MODEL_UNAVAILABLE
    given = launch(tmp_path, a_spec(tmp_path), resume_from="latest")
    record = await failed(tmp_path, given, capsys)
    assert record.reason is ReasonCode.CHECKPOINT_UNREADABLE
    given = launch(tmp_path, a_spec(tmp_path), resume_from="runs/run_0/checkpoints/none")
    record = await failed(tmp_path, given, capsys)
    assert record.reason is ReasonCode.CHECKPOINT_UNREADABLE


def test_a_run_whose_checkpoint_was_deleted_goes_on_from_its_newest(tmp_path: Path) -> None:
    store = DiskStore(tmp_path / "blobs")
    for run_id, step in (("run_1", 2), ("run_1", 4), ("run_2", 2)):
        store.put(f"runs/{run_id}/checkpoints/global_step_{step}/attempt-1/manifest.json", b"")

    def key_of(given: str) -> str | None:
        return process._checkpoint_key(launch(tmp_path, None, resume_from=given), store)

    newest = "runs/run_1/checkpoints/global_step_4/attempt-1"
    assert key_of("runs/run_1/checkpoints/global_step_3/attempt-1") == newest
    there = "runs/run_1/checkpoints/global_step_2/attempt-1"
    assert key_of(there) == there
    of_another = "runs/run_2/checkpoints/global_step_3/attempt-1"
    assert key_of(of_another) == of_another
    store.delete_prefix("runs/run_1")
    assert key_of(there) == there, "it is reported as unreadable"


async def test_a_store_that_is_away_at_a_resume_is_no_fault_of_the_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(_: DiskStore, key: str) -> bytes:
        raise StoreError(f"blob {key!r}: connection refused")

    monkeypatch.setattr(DiskStore, "get", away)
    key = "runs/run_1/checkpoints/global_step_1/attempt-1"
    given = launch(tmp_path, a_spec(tmp_path), resume_from=key)
    record = await failed(tmp_path, given, capsys)
    assert record.reason is ReasonCode.STORE_UNAVAILABLE
    assert record.message == f"blob '{key}/manifest.json': connection refused"


@pytest.mark.parametrize(
    ("noted", "said"),
    [
        ("0" * 64, "manifest.json is not the one that was saved"),
        (None, "is no checkpoint that the service knows"),
    ],
)
async def test_an_attempt_resumes_only_from_what_the_service_has_noted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], noted: str | None, said: str
) -> None:
    key = "runs/run_0/checkpoints/global_step_1/attempt-1"
    DiskStore(tmp_path / "blobs").put(f"{key}/manifest.json", b"a pickle, perhaps")
    given = launch(tmp_path, a_spec(tmp_path), resume_from=key)
    given.dir.path.mkdir(parents=True, exist_ok=True)
    given.dir.manifests.write_text(json.dumps({key: noted} if noted else {}))
    record = await failed(tmp_path, given, capsys)
    assert record.reason is ReasonCode.CHECKPOINT_UNREADABLE
    assert said in record.message


async def test_a_store_of_no_known_kind_is_in_the_exit_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = launch(tmp_path, a_spec(tmp_path), environ={"HILLCLIMB_BLOBS_URL": "ftp://x"})
    assert await run_attempt(given) == EXIT_FAILED
    assert "Traceback" not in capsys.readouterr().err
    record = ExitRecord.model_validate_json(given.dir.exit.read_bytes())
    assert record.message == "HILLCLIMB_BLOBS_URL: unknown kind of store: 'ftp://x'"


async def test_lengths_beyond_the_models_positions_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = a_spec(tmp_path, rollout={**LENGTHS, "max_sequence_length": 5000})
    record = await failed(tmp_path, launch(tmp_path, spec), capsys)
    assert "larger than the model's positions (4000)" in record.message


async def test_an_attempt_that_only_evaluates_says_so_and_saves_nothing(tmp_path: Path) -> None:
    sections: dict[str, dict[str, Any]] = {
        "environment": {"max_turns": 1},
        "eval": {"before_training": False, "interval": 0},
        "schedule": {"total_steps": 1},
    }
    spec = a_spec(tmp_path, **sections)
    assert await run_attempt(launch(tmp_path, spec)) == 0
    store = DiskStore(tmp_path / "blobs")
    path = tmp_path / "eval.json"
    path.write_text(json.dumps({**spec, "kind": "eval"}))
    given = ProcessOptions(
        spec=path,
        run_dir=tmp_path / "runs" / "run_2",
        attempt=1,
        resume_from=find_latest(store, "run_1"),
        environ={},
    )
    assert await run_attempt(given) == 0
    event, record = ended(given.dir)
    assert (record.reason, record.message) == (ReasonCode.COMPLETED, "evaluated step 1")
    assert event.training_seconds == 0.0
    assert event.eval_seconds > 0.0
    assert find_latest(store, "run_2") is None


async def test_an_attempt_that_probes_says_what_it_found_also_where_environments_fail(
    tmp_path: Path,
) -> None:
    sections: dict[str, dict[str, Any]] = {
        "environment": {
            "max_turns": 1,
            "overrides": {"github": {"faults": {"reset_error_rate": 1.0}}},
            "max_infra_error_rate": 0.0,
        },
        "probe": {"tasks_per_env": 5, "n_samples_per_prompt": 2},
    }
    spec = a_spec(tmp_path, **sections) | {"kind": "probe"}
    given = launch(tmp_path, spec)
    assert await run_attempt(given) == 0
    event, record = ended(given.dir)
    assert record.reason is ReasonCode.COMPLETED
    assert record.message == "probed 10 tasks: booking inconclusive, github unhealthy"
    assert (record.step, event.training_seconds) == (0, 0.0)
    lines = given.dir.events.read_bytes().splitlines()
    (probe,) = [e for e in map(EVENTS.validate_json, lines) if isinstance(e, ProbeCompleted)]
    assert probe.environments["github"].infra_errors == {"env_unavailable": 5 * 2 * 3}
    assert find_latest(DiskStore(tmp_path / "blobs"), "run_1") is None


async def test_an_attempt_that_validates_needs_no_model(tmp_path: Path) -> None:
    spec = a_spec(tmp_path, validation={"tasks_per_env": 3}) | {"kind": "validate"}
    given = launch(tmp_path, {**spec, "model": {"source": "/no/such"}})
    assert await run_attempt(given) == 0
    event, record = ended(given.dir)
    assert record.reason is ReasonCode.COMPLETED
    assert record.message == "validated 6 tasks: 6 valid"
    assert event.eval_seconds > 0.0
    stored = DiskStore(tmp_path / "blobs").list("runs/run_1")
    assert "runs/run_1/attempt-1/validation.jsonl.gz" in stored


async def test_injected_faults_reach_the_environments_and_pause_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = a_spec(
        tmp_path,
        environment={
            "overrides": {"github": {"faults": {"reset_error_rate": 1.0}}},
            "max_infra_error_rate": 0.4,
            "max_infra_retries": 0,
            "max_turns": 1,
        },
    )
    record = await failed(tmp_path, launch(tmp_path, spec), capsys)
    assert record.reason is ReasonCode.ENVIRONMENT_OUTAGE
    assert "github: env_unavailable" in record.message


async def test_a_full_disk_ends_the_run_as_storage_full(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("trainer.jobs.rollout_service.write_trajectories", full)
    given = launch(tmp_path, a_spec(tmp_path, environment={"max_turns": 1}))
    record = await failed(tmp_path, given, capsys)
    assert record.reason is ReasonCode.STORAGE_FULL


def test_a_truly_full_disk_still_says_why_in_the_exit_record(tmp_path: Path) -> None:
    spec, disk = tmp_path / "spec.json", tmp_path / "disk"
    spec.write_text(json.dumps(a_spec(tmp_path, environment={"max_turns": 1})))
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a small disk needs privileges")
    try:
        # Enough for the first events, too little for the first evaluation.
        (disk / "filler").write_bytes(bytes(shutil.disk_usage(disk).free - 24_000))
        where = AttemptDir(disk / "runs" / "run_1", 1)
        given = ["run", "--threads", "1", "--spec", str(spec), "--run-dir", str(where.run_dir)]
        done = run_forked(main, given)
        record = ExitRecord.model_validate_json(where.exit.read_bytes())
        assert (done.returncode, record.reason) == (EXIT_FAILED, ReasonCode.STORAGE_FULL)
        assert "Traceback" not in done.stderr
        assert done.stderr.count("error: ") == 1
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("attempt", ["0", "-1", "x"])
def test_attempts_count_from_one(attempt: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "--spec", "s", "--run-dir", "r", "--attempt", attempt])
    assert "--attempt" in capsys.readouterr().err


def test_a_directory_that_cannot_be_made_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert main(["run", "--spec", "s", "--run-dir", str(tmp_path / "file" / "r")]) == EXIT_FAILED
    assert capsys.readouterr().err.startswith("error: ")


async def test_a_spec_that_is_a_directory_is_rejected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "spec.json").mkdir()
    record = await failed(tmp_path, launch(tmp_path, None), capsys)
    assert record.reason is ReasonCode.SPEC_REJECTED
    assert "cannot be read" in record.message


async def test_a_superseded_attempt_leaves_without_a_word(tmp_path: Path) -> None:
    with serving() as ingest:
        ingest.answers = [(409, {"code": "attempt_superseded"})]
        environ = {"HILLCLIMB_INGEST_URL": ingest.url, "HILLCLIMB_ATTEMPT_TOKEN": "tok"}
        given = launch(tmp_path, a_spec(tmp_path), environ=environ)
        assert await run_attempt(given) == EXIT_SUPERSEDED
    assert ingest.tokens == ["Bearer tok"]
    events = [json.loads(line) for line in given.dir.events.read_bytes().splitlines()]
    assert all(event["type"] != "trainer.ended" for event in events)
    assert find_latest(DiskStore(tmp_path / "blobs"), "run_1") is None
    record = ExitRecord.model_validate_json(given.dir.exit.read_bytes())
    assert record.reason is ReasonCode.ATTEMPT_SUPERSEDED


@pytest.mark.invariant("SIGTERM saves a checkpoint, and the next process resumes from it")
def test_sigterm_saves_and_leaves_and_latest_goes_on(tmp_path: Path) -> None:
    """By the true command line: elsewhere, `run_forked` stands for it."""
    spec = tmp_path / "spec.json"
    sections: dict[str, dict[str, Any]] = {
        "environment": {"max_turns": 1},
        "eval": {"before_training": False, "interval": 0},
        "checkpoints": {"interval": 1000},
    }
    long = a_spec(tmp_path, schedule={"total_steps": 1000}, **sections)
    spec.write_text(json.dumps(long))
    where = AttemptDir(tmp_path / "state" / "runs" / "run_1", 1)
    where.path.mkdir(parents=True)
    command = [sys.executable, "-m", "trainer", "run", "--threads", "1", "--spec", str(spec)]
    command += ["--run-dir", str(where.run_dir)]
    process = subprocess.Popen([*command, "--attempt", "1"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if "step 1/1000" in line:
            break
    process.send_signal(signal.SIGTERM)
    process.stderr.read()
    process.stderr.close()
    assert process.wait(WAIT_S) == 0
    event, record = ended(where)
    assert (record.reason, event.step) == (ReasonCode.RUNNER_STOPPED, record.step)
    assert record.step >= 1
    latest = find_latest(DiskStore(tmp_path / "state" / "blobs"), "run_1")
    assert latest == f"runs/run_1/checkpoints/global_step_{record.step}/attempt-1"
    assert "step 1/1000" in where.log.read_text()

    total = record.step + 1
    spec.write_text(json.dumps(long | {"schedule": {**long["schedule"], "total_steps": total}}))
    second = ProcessOptions(
        spec=spec, run_dir=where.run_dir, attempt=2, resume_from="latest", environ={}
    )
    assert asyncio.run(run_attempt(second)) == 0
    event, record = ended(second.dir)
    assert (record.reason, record.step) == (ReasonCode.COMPLETED, total)
    assert event.training_seconds > 0.0
