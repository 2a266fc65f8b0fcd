"""The runner as a process: what it does with trainers, and what survives its own death."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.protocol.launch import RunnerCommand
from hillclimb.protocol.rundir import AttemptDir, event_segment, run_key
from tests.worker.environment import variables_of
from tests.worker.runner.bench import Bench, gone
from tests.worker.runner.service import TOKEN, ScriptedService, plan

RUN = "run_0123456789"


@pytest.fixture
def bench(tmp_path: Path, service: ScriptedService) -> Iterator[Bench]:
    made = Bench(folder=tmp_path, url=service.url, token=TOKEN)
    made.prepare()
    yield made
    made.clean()


def test_claimed_attempt_runs_to_its_end_and_the_end_is_reported(
    bench: Bench, service: ScriptedService
) -> None:
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: "att_1" in service.ends)
    end = service.ends["att_1"]
    assert end["reason"] == "completed"
    assert end["exit_code"] == 0
    assert end["last_trainer_seq"] == len(service.events)
    bench.until(lambda: not list((bench.state / "runner/attempts").glob("*.json")))


def test_among_many_runners_it_claims_when_a_heartbeat_says_that_something_waits(
    bench: Bench, service: ScriptedService
) -> None:
    service.crowd_interval_s = 0.5
    bench.start()
    bench.until(lambda: len(service.heartbeats) >= 5)
    assert service.num_claims <= 2, "those before the first answer alone"
    service.plans.append(plan(service.url))
    bench.until(lambda: "att_1" in service.ends)


def test_trainer_never_sees_the_runners_secrets(bench: Bench, service: ScriptedService) -> None:
    bench.hold(1)
    bench.environment = {"DATABASE_URL": "postgresql+psycopg://secret"}
    service.plans.append(plan(service.url))
    bench.start()
    variables = variables_of(bench.trainer(bench.attempt_dir(RUN, 1)).pid)
    assert not any(TOKEN in value or "postgresql" in value for value in variables.values())
    assert variables["HILLCLIMB_ATTEMPT_TOKEN"] == "attempt-token"


def test_the_secrets_of_an_attempt_reach_its_trainer_and_leave_no_file(
    bench: Bench, service: ScriptedService
) -> None:
    """Also after a restart: the rest of the log is redacted by a runner that never claimed it."""
    gate = bench.hold(2)
    service.plans.append(plan(service.url, secrets={"FLEET_API_KEY": "the-fleet-key"}))
    bench.start()
    trainer = bench.trainer(attempt_dir := bench.attempt_dir(RUN, 1))
    variables = variables_of(trainer.pid)
    assert variables["FLEET_API_KEY"] == "the-fleet-key"
    assert variables["HILLCLIMB_SECRET_NAMES"] == "FLEET_API_KEY"
    (file,) = (bench.state / "runner/secrets").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    bench.until(lambda: bench.num_lines(attempt_dir) >= 3)
    bench.kill_runner()
    with attempt_dir.log.open("a") as log:
        log.write("401: the-fleet-key is not valid\n")
    bench.start()
    bench.until(lambda: len(service.registrations) == 2)
    gate.unlink()
    bench.until(lambda: "att_1" in service.ends)
    entry = bench.state / "runner/attempts/att_1.json"  # deleted last
    bench.until(lambda: not file.exists() and not entry.exists())
    uploaded = b"".join(each.read_bytes() for each in bench.blobs.rglob("*") if each.is_file())
    assert b"401: ************* is not valid" in uploaded
    kept = [each for each in bench.state.rglob("*") if each.is_file()]
    with_it = [each for each in kept if b"the-fleet-key" in each.read_bytes()]
    assert with_it == [attempt_dir.log]
    assert b"the-fleet-key" not in uploaded + (bench.folder / "runner.log").read_bytes()


def test_restarted_runner_adopts_the_trainer_and_reports_its_end(
    bench: Bench, service: ScriptedService
) -> None:
    gate = bench.hold(2)
    service.plans.append(plan(service.url))
    bench.start()
    before = bench.trainer(attempt_dir := bench.attempt_dir(RUN, 1))
    bench.until(lambda: bench.num_lines(attempt_dir) >= 3)
    bench.kill_runner()
    bench.start()
    bench.until(lambda: len(service.registrations) == 2)
    assert service.registrations[1]["attempts"] == ["att_1"]
    assert bench.trainer(attempt_dir) == before
    gate.unlink()
    bench.until(lambda: "att_1" in service.ends)
    assert service.ends["att_1"]["reason"] == "completed"
    assert service.ends["att_1"]["exit_code"] is None


def test_trainer_without_pid_file_is_found_by_its_mark(
    bench: Bench, service: ScriptedService
) -> None:
    gate = bench.hold(2)
    service.plans.append(plan(service.url))
    bench.start()
    before = bench.trainer(attempt_dir := bench.attempt_dir(RUN, 1))
    bench.until(lambda: bench.num_lines(attempt_dir) >= 3)
    bench.kill_runner()
    attempt_dir.pid.unlink()
    bench.start()
    assert bench.trainer(attempt_dir).pid == before.pid
    gate.unlink()
    bench.until(lambda: "att_1" in service.ends)


def test_trainer_that_ended_while_no_runner_watched_is_reported(
    bench: Bench, service: ScriptedService
) -> None:
    gate = bench.hold(2)
    service.plans.append(plan(service.url))
    bench.start()
    trainer = bench.trainer(bench.attempt_dir(RUN, 1))
    bench.kill_runner()
    gate.unlink()
    bench.until(gone(trainer))
    bench.start()
    bench.until(lambda: "att_1" in service.ends)
    assert service.ends["att_1"]["reason"] == "completed"


def test_killed_trainer_is_reported_with_its_signal_and_its_log_and_its_tail_is_mirrored(
    bench: Bench, service: ScriptedService
) -> None:
    (bench.gates / "die-3").touch()
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: "att_1" in service.ends)
    end = service.ends["att_1"]
    assert end["reason"] == "trainer_crashed"
    assert end["exit_code"] == -signal.SIGKILL
    assert "was killed by SIGKILL" in end["message"]
    lines = bench.attempt_dir(RUN, 1).events.read_bytes()
    assert end["last_trainer_seq"] == lines.count(b"\n") == 5
    assert (bench.blobs / run_key(RUN, event_segment(1, 1))).read_bytes() == lines


def test_tail_goes_on_where_the_mirrored_segments_stop(
    bench: Bench, service: ScriptedService
) -> None:
    gate = bench.hold(3)
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: bench.num_lines(bench.attempt_dir(RUN, 1)) == 5)
    lines = bench.attempt_dir(RUN, 1).events.read_bytes().splitlines(keepends=True)
    first = bench.blobs / run_key(RUN, event_segment(1, 1))
    first.parent.mkdir(parents=True)
    first.write_bytes(b"".join(lines[:2]))
    (bench.gates / "die-3").touch()
    os.kill(bench.trainer(bench.attempt_dir(RUN, 1)).pid, signal.SIGKILL)
    bench.until(lambda: "att_1" in service.ends)
    gate.unlink()
    second = bench.blobs / run_key(RUN, event_segment(1, 2))
    assert second.read_bytes() == b"".join(lines[2:])


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)]
)
def test_stopped_runner_lets_its_trainer_checkpoint_and_leaves_no_process(
    bench: Bench, service: ScriptedService, number: signal.Signals
) -> None:
    bench.hold(2)
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: bench.num_lines(bench.attempt_dir(RUN, 1)) == 3)
    assert bench.stop_runner(number) == 0
    assert service.ends["att_1"]["reason"] == "runner_stopped"
    assert any(beat["draining"] for beat in service.heartbeats)
    assert not bench.leftovers()


def test_stopped_runner_that_holds_nothing_says_that_it_takes_nothing_more(
    bench: Bench, service: ScriptedService
) -> None:
    bench.start()
    bench.until(lambda: bool(service.heartbeats))
    assert bench.stop_runner() == 0
    assert service.heartbeats[-1] == {"attempts": [], "draining": True}


def test_trainer_that_will_not_leave_is_killed_when_the_runner_stops(
    bench: Bench, service: ScriptedService
) -> None:
    bench.hold(2)
    (bench.gates / "deaf").touch()
    bench.environment = {"HILLCLIMB_RUNNER_STOP_TIMEOUT_S": "1"}
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: bench.num_lines(bench.attempt_dir(RUN, 1)) == 3)
    assert bench.stop_runner() == 0
    assert service.ends["att_1"]["reason"] == "runner_stopped"
    assert "was killed by SIGKILL" in service.ends["att_1"]["message"]
    assert not bench.leftovers()


def test_commands_stop_and_kill_reach_the_trainer(bench: Bench, service: ScriptedService) -> None:
    bench.environment = {"HILLCLIMB_RUNNER_SLOTS": "2"}
    bench.hold(2)
    service.plans += [plan(service.url, 1), plan(service.url, 2)]
    bench.start()
    attempts = [bench.attempt_dir(RUN, number) for number in (1, 2)]
    # Both train: one that has only just started would still end by the signal itself.
    bench.until(lambda: all(bench.num_lines(each) == 3 for each in attempts))
    service.commands += [
        RunnerCommand(attempt_id="att_1", action="stop"),
        RunnerCommand(attempt_id="att_2", action="kill"),
    ]
    bench.until(lambda: len(service.ends) == 2)
    assert service.ends["att_1"]["exit_code"] == 0
    assert service.ends["att_2"]["exit_code"] == -signal.SIGKILL


def test_stop_is_sent_once_even_by_two_runners(bench: Bench, service: ScriptedService) -> None:
    bench.hold(2)
    (bench.gates / "slow").touch()
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: bench.num_lines(bench.attempt_dir(RUN, 1)) == 3)
    service.commands.append(RunnerCommand(attempt_id="att_1", action="stop"))
    journal = bench.state / "runner/attempts/att_1.json"
    bench.until(lambda: json.loads(journal.read_text())["stop_sent"])
    bench.until(lambda: bool(list(bench.gates.glob("asked-*"))))
    bench.kill_runner()
    bench.start()
    beats = len(service.heartbeats)
    bench.until(lambda: len(service.heartbeats) > beats + 2)
    (bench.gates / "slow").unlink()
    bench.until(lambda: "att_1" in service.ends)
    assert [path.name for path in bench.gates.glob("asked-*")] == ["asked-1"]


def test_slots_limit_the_trainers_at_once(bench: Bench, service: ScriptedService) -> None:
    gate = bench.hold(1)
    service.plans += [plan(service.url, 1), plan(service.url, 2)]
    bench.start()
    bench.until(lambda: len(service.heartbeats) > 3 and bench.attempt_dir(RUN, 1).pid.exists())
    assert len(service.plans) == 1
    gate.unlink()
    bench.until(lambda: len(service.ends) == 2)


def test_service_that_is_away_costs_no_trainer_and_no_report(
    bench: Bench, service: ScriptedService
) -> None:
    gate = bench.hold(2)
    service.plans.append(plan(service.url))
    bench.start()
    trainer = bench.trainer(bench.attempt_dir(RUN, 1))
    bench.until(lambda: bench.num_lines(bench.attempt_dir(RUN, 1)) == 3)
    service.stop()
    gate.unlink()
    bench.until(gone(trainer))
    journal = bench.state / "runner/attempts/att_1.json"
    bench.until(lambda: json.loads(journal.read_text())["end"] is not None)
    bench.kill_runner()
    service.start()
    bench.start()
    bench.until(lambda: "att_1" in service.ends)
    assert service.ends["att_1"]["reason"] == "completed"


def test_runner_the_service_forgot_registers_again(bench: Bench, service: ScriptedService) -> None:
    bench.start()
    bench.until(lambda: len(service.heartbeats) > 0)
    service.forget_runner = True
    bench.until(lambda: len(service.registrations) == 2)


def test_a_restarted_runner_has_the_identity_that_it_had(
    bench: Bench, service: ScriptedService
) -> None:
    bench.start()
    bench.until(lambda: len(service.registrations) == 1)
    bench.kill_runner()
    bench.start()
    bench.until(lambda: len(service.registrations) == 2)
    first, second = service.identities
    assert (first, len(first) >= 32) == (second, True)
    assert (bench.state / "runner" / "identity").stat().st_mode & 0o777 == 0o600


def test_full_disk_ends_the_attempt_with_a_sentence(bench: Bench, service: ScriptedService) -> None:
    attempt_dir: AttemptDir = bench.attempt_dir(RUN, 1)
    attempt_dir.path.mkdir(parents=True)
    attempt_dir.spec.symlink_to("/dev/full")
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: "att_1" in service.ends)
    assert service.ends["att_1"]["reason"] == "storage_full"
    assert "no space left on the runner's machine" in service.ends["att_1"]["message"]


def test_missing_trainer_python_ends_the_attempt_with_its_name(
    bench: Bench, service: ScriptedService
) -> None:
    (bench.folder / "python").unlink()
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: "att_1" in service.ends)
    assert str(bench.folder / "python") in service.ends["att_1"]["message"]


def test_a_plan_of_a_newer_service_ends_the_attempt_instead_of_the_queue(
    bench: Bench, service: ScriptedService
) -> None:
    service.novelties = {"novelty": "attempt-token"}
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: "att_1" in service.ends)
    assert service.ends["att_1"]["reason"] == "spec_rejected"
    assert "does not know spec.novelty: update it" in service.ends["att_1"]["message"]
    service.novelties = {}
    service.plans.append(plan(service.url, attempt=2))
    bench.until(lambda: "att_2" in service.ends)
    assert service.ends["att_2"]["reason"] == "completed"


def test_second_runner_in_the_same_directory_refuses(
    bench: Bench, service: ScriptedService
) -> None:
    bench.start()
    bench.until(lambda: len(service.registrations) == 1)
    first = bench.process
    assert bench.start().wait(20) == 2
    bench.process = first
    assert "another runner is using" in (bench.folder / "runner.log").read_text()


def test_wrong_token_ends_the_runner_with_a_sentence(
    bench: Bench, service: ScriptedService
) -> None:
    bench.token = "wrong"
    assert bench.start().wait(20) == 2
    assert "wrong token" in (bench.folder / "runner.log").read_text()


def test_the_folder_of_a_deleted_run_goes_and_that_of_any_other_run_stays(
    bench: Bench, service: ScriptedService
) -> None:
    runs = bench.state / "runs"
    folders = ("run_deleted", "run_known", "notes", ".deleting-run_earlier")
    for name in folders:
        (runs / name / "attempt-1").mkdir(parents=True)
        (runs / name / "attempt-1" / "events.jsonl").write_text("{}\n")
    service.deleted = {"run_deleted", "run_elsewhere", "..", "notes", RUN}
    bench.hold(2)
    service.plans.append(plan(service.url))
    bench.start()
    bench.until(lambda: not any(runs.glob("*deleted")) and not any(runs.glob(".deleting*")))
    # Also one that the service lists by mistake stays while its trainer is there.
    bench.trainer(bench.attempt_dir(RUN, 1))
    bench.kill_runner()
    bench.start()
    bench.until(lambda: len(service.folders) == 2)
    assert service.folders == [["run_deleted", "run_known"], ["run_known"]]
    assert {each.name for each in runs.iterdir()} == {"run_known", "notes", RUN}
