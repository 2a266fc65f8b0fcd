"""The supervisor over tiny real processes."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from hillclimb.stack.control import down, status
from hillclimb.stack.errors import StackRunning
from hillclimb.stack.system.poll import wait_until
from hillclimb.stack.system.processes import identify
from tests.hillclimb.stack.tiny import DEADLINE_S, TinyStack

DATABASE = {"name": "database"}
API = {"name": "api", "needs": ["database"]}
RUNNER = {"name": "runner", "needs": ["api"]}


def gone(pid: int) -> bool:
    return wait_until(lambda: identify(pid) is None, deadline_s=DEADLINE_S)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_services_in_reverse_order_and_leaves_none(
    tiny: TinyStack, number: signal.Signals
) -> None:
    tiny.describe(DATABASE, API, RUNNER)
    record = tiny.start_ready()
    assert [service.state for service in record.services.values()] == ["ready"] * 3
    code, said = tiny.end(number)
    assert code == 0, said
    assert tiny.stop_order() == ["runner", "api", "database"]
    assert tiny.left() == []
    assert tiny.record().state == "stopped"


def test_a_closed_terminal_does_not_keep_the_services_from_being_stopped(
    tiny: TinyStack,
) -> None:
    tiny.describe(DATABASE, API)
    tiny.start_ready()
    process = tiny.supervisor
    assert process is not None
    assert process.stdout is not None
    process.stdout.close()
    process.send_signal(signal.SIGHUP)
    process.wait(DEADLINE_S)
    assert tiny.stop_order() == ["api", "database"]
    assert tiny.left() == []


def test_services_live_in_sessions_of_their_own_so_ctrl_c_reaches_only_the_supervisor(
    tiny: TinyStack,
) -> None:
    tiny.describe(DATABASE, API)
    tiny.start_ready()
    assert tiny.supervisor is not None
    sessions = {os.getsid(pid) for pid in (tiny.supervisor.pid, *tiny.left())}
    assert len(sessions) == 3


def test_a_killed_service_is_restarted_and_the_others_go_on(tiny: TinyStack) -> None:
    tiny.describe(DATABASE, API)
    tiny.start_ready()
    database, api = tiny.pid("database"), tiny.pid("api")
    kill(api)
    tiny.await_record(
        lambda record: (
            record.services["api"].restarts == 1 and record.services["api"].state == "ready"
        )
    )
    assert tiny.pid("api") != api
    assert tiny.pid("database") == database
    assert tiny.service("api").last_exit == "killed by SIGKILL"
    _, said = tiny.end()
    assert "api: killed by SIGKILL; restarting in" in said


def test_after_the_supervisor_is_killed_the_next_one_adopts_every_service(
    tiny: TinyStack,
) -> None:
    tiny.describe(DATABASE, API, RUNNER)
    tiny.start_ready()
    before = {name: tiny.pid(name) for name in ("database", "api", "runner")}
    tiny.kill_supervisor()
    tiny.start_ready()
    assert {name: tiny.pid(name) for name in before} == before
    kill(before["api"])
    tiny.await_record(lambda record: record.services["api"].restarts == 1)
    tiny.await_record(lambda record: record.services["api"].state == "ready")
    _, said = tiny.end()
    assert f"runner: adopted pid {before['runner']}" in said
    assert tiny.left() == []


def test_a_process_that_was_never_recorded_is_found_by_its_mark_and_adopted(
    tiny: TinyStack,
) -> None:
    tiny.describe(DATABASE)
    tiny.start_ready()
    pid = tiny.pid("database")
    tiny.kill_supervisor()
    tiny.state.record_file.unlink()
    tiny.start_ready()
    assert tiny.pid("database") == pid


def test_a_left_process_with_other_settings_is_replaced(tiny: TinyStack) -> None:
    tiny.describe(DATABASE, API)
    tiny.start_ready()
    database, api = tiny.pid("database"), tiny.pid("api")
    tiny.kill_supervisor()
    tiny.describe(DATABASE, API | {"mark": "changed"})
    tiny.start_ready()
    assert tiny.pid("database") == database
    assert gone(api)


def test_a_service_that_ignores_sigterm_is_killed_at_its_deadline(tiny: TinyStack) -> None:
    tiny.describe(DATABASE, {"name": "stubborn", "kind": "stubborn", "stop_s": 0.3})
    tiny.start_ready()
    code, said = tiny.end()
    assert code == 0
    assert "stubborn: killed, it did not stop in time" in said
    assert tiny.left() == []


def test_a_second_ctrl_c_cuts_the_deadlines(tiny: TinyStack) -> None:
    tiny.describe({"name": "stubborn", "kind": "stubborn", "stop_s": 600})
    tiny.start_ready()
    assert tiny.supervisor is not None
    tiny.supervisor.send_signal(signal.SIGINT)
    tiny.await_record(lambda record: record.state == "stopping")
    code, _ = tiny.end(signal.SIGINT)
    assert code == 0
    assert tiny.left() == []


def test_a_one_shot_that_fails_ends_the_start_with_its_own_words(tiny: TinyStack) -> None:
    migrate = {"name": "migrate", "kind": "broken", "one_shot": True, "needs": ["database"]}
    tiny.describe(DATABASE, migrate, API | {"needs": ["migrate"]})
    process = tiny.start()
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "migrate exited with 1" in said
    assert "the disk is on fire" in said
    assert "api" not in said
    assert tiny.record().error
    assert tiny.left() == []


def test_a_service_that_never_becomes_ready_is_given_up_after_its_attempts(
    tiny: TinyStack,
) -> None:
    tiny.describe(DATABASE, {"name": "api", "kind": "broken"})
    process = tiny.start()
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "api exited with 1, 3 times" in said
    assert tiny.left() == []


def test_a_service_that_starts_too_slowly_is_given_up_with_what_is_missing(
    tiny: TinyStack,
) -> None:
    tiny.describe({"name": "api", "kind": "slow", "start_s": 0.3})
    process = tiny.start()
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 1
    assert "api not ready within 0.3 s: it has not written" in said
    assert tiny.left() == []


def test_a_one_shot_runs_to_its_end_before_what_needs_it(tiny: TinyStack) -> None:
    tiny.describe(
        {"name": "migrate", "kind": "done", "one_shot": True}, API | {"needs": ["migrate"]}
    )
    record = tiny.start_ready()
    assert record.services["migrate"].state == "done"
    assert record.services["api"].state == "ready"


def test_a_second_supervisor_on_the_same_directory_is_refused(tiny: TinyStack) -> None:
    tiny.describe(DATABASE)
    tiny.start_ready()
    with (
        pytest.raises(StackRunning, match="already running"),
        tiny.state.hold(),
    ):
        pass


def test_a_detached_grandchild_survives_its_dead_parent_and_ends_with_the_stack(
    tiny: TinyStack,
) -> None:
    tiny.describe({"name": "runner", "kind": "parent"})
    tiny.start_ready()
    parent = psutil.Process(tiny.pid("runner"))
    assert wait_until(lambda: len(parent.children()) == 1, deadline_s=DEADLINE_S)
    trainer = parent.children()[0].pid
    kill(parent.pid)
    tiny.await_record(lambda record: record.services["runner"].restarts == 1)
    tiny.await_record(lambda record: record.services["runner"].state == "ready")
    assert identify(trainer) is not None
    _, said = tiny.end()
    assert f"left over: stopping pid {trainer}" in said
    assert gone(trainer)


@pytest.mark.parametrize("how", ["signal", "kill", "down"])
def test_what_a_service_leaves_in_its_group_ends_with_it_marked_or_not(
    tiny: TinyStack, how: str
) -> None:
    tiny.describe({"name": "sky-api", "kind": "pool"})
    tiny.start_ready()
    leader = tiny.pid("sky-api")
    (child,) = psutil.Process(leader).children()
    if how == "signal":
        tiny.end()
    elif how == "kill":
        kill(leader)
        tiny.await_record(lambda record: record.services["sky-api"].restarts == 1)
    else:
        tiny.kill_supervisor()
        down(tiny.state.path, say=print)
    assert gone(child.pid)


def test_down_asks_the_supervisor_and_returns_when_nothing_is_left(tiny: TinyStack) -> None:
    tiny.describe(DATABASE, API)
    tiny.start_ready()
    lines: list[str] = []
    assert down(tiny.state.path, say=lines.append)
    assert tiny.left() == []
    assert tiny.stop_order() == ["api", "database"]
    assert [line.split(":")[0] for line in lines] == ["supervisor", "api", "database"]
    assert not down(tiny.state.path, say=lines.append)


def test_down_cleans_up_after_a_killed_supervisor_in_reverse_order(tiny: TinyStack) -> None:
    tiny.describe(DATABASE, API, {"name": "runner", "kind": "parent"})
    tiny.start_ready()
    tiny.kill_supervisor()
    assert status(tiny.state.path).state == "stopped"
    assert status(tiny.state.path).services["api"].process is not None
    lines: list[str] = []
    assert down(tiny.state.path, say=lines.append)
    assert tiny.stop_order() == ["runner", "api", "database"]
    assert any("left over" in line for line in lines)
    assert tiny.left() == []


def test_down_where_nothing_ever_ran_finds_nothing_to_stop(tmp_path: Path) -> None:
    assert not down(tmp_path / "nowhere", say=print)
