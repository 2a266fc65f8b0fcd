"""One node as a process against the real API: what it does with a trainer, and what it survives."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from api.results.artifacts.logs import read_log
from api.runs.journal import utc_now
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.rundir import event_segment, run_key
from tests.api.clusters.renting import Rented
from tests.api.fixtures.serving import Served
from tests.worker.environment import variables_of
from tests.worker.node.bench import NodeBench, gone
from tests.worker.node.conftest import SECRETS
from tests.worker.run_simulation import RunSimulation
from worker.clusters import blob_channel
from worker.runs import relay

Make = Callable[..., tuple[NodeBench, Rented]]
FAKE_SMI = """#!/bin/sh
echo "0, GPU-a, Fake H100, 4, 31, 0"
echo "1, GPU-b, Fake H100, 40960, 33, 2"
"""


def end_code(sim: RunSimulation, rented: Rented) -> str | None:
    return sim.attempts(rented.run_id)[0].end_code


def test_a_node_trains_an_attempt_and_the_service_hears_its_end(
    served: Served, make_bench: Make, sim: RunSimulation, store: DiskStore
) -> None:
    bench, rented = make_bench(served.url)
    assert bench.exit_code(bench.start()) == 0
    attempt = sim.attempts(rented.run_id)[0]
    assert (attempt.end_code, attempt.exit_code) == ("completed", 0)
    assert attempt.last_trainer_seq == attempt.final_trainer_seq
    types = sim.types(rented.run_id)
    assert types.index("attempt.claimed") < types.index("trainer.started")
    assert bench.left() == []
    told = read_log(store, rented.run_id, 1, after=0, limit=1 << 20).text
    assert "trainer.node.head: started the trainer" in told
    assert store.exists(run_key(rented.run_id, event_segment(1, 1)))


def test_the_trainer_gets_the_secrets_and_no_log_line_has_them(
    served: Served, make_bench: Make, sim: RunSimulation, store: DiskStore
) -> None:
    bench, rented = make_bench(served.url)
    gate = bench.hold(2)
    node = bench.start()
    variables = variables_of(bench.trainer().pid)
    token, code = variables["HILLCLIMB_ATTEMPT_TOKEN"], bench.variables["HILLCLIMB_BOOTSTRAP_TOKEN"]
    assert variables["AWS_SECRET_ACCESS_KEY"] == SECRETS["AWS_SECRET_ACCESS_KEY"]
    assert "HILLCLIMB_BOOTSTRAP_TOKEN" not in variables
    with bench.attempt_dir().log.open("a") as log:
        log.write(f"key {SECRETS['AWS_SECRET_ACCESS_KEY']} token {token} code {code}\n")
    gate.unlink()
    assert bench.exit_code(node) == 0
    kept = [path for path in (bench.home / "node").rglob("*") if path.is_file()]
    shipped = [path for path in bench.blobs.rglob("*") if path.is_file()]
    assert kept
    assert shipped
    for secret in (SECRETS["AWS_SECRET_ACCESS_KEY"], token, code):
        holding = [path for path in (*kept, *shipped) if secret in path.read_text(errors="replace")]
        assert holding == []
        assert secret not in bench.log.read_text()
    assert "key ****" in read_log(store, rented.run_id, 1, after=0, limit=1 << 20).text


def test_sigterm_lets_the_trainer_checkpoint_and_the_run_goes_on_later(
    served: Served, make_bench: Make, sim: RunSimulation
) -> None:
    bench, rented = make_bench(served.url)
    bench.hold(2)
    node = bench.start()
    bench.trains(3)
    node.send_signal(signal.SIGTERM)
    assert bench.exit_code(node) == 0
    assert end_code(sim, rented) == "runner_stopped"
    assert "checkpoint.saved" in sim.types(rented.run_id)
    assert bench.left() == []


@pytest.mark.invariant("cancelling a run reaches the trainer on a node")
def test_a_cancelled_run_reaches_its_trainer(
    served: Served, make_bench: Make, sim: RunSimulation
) -> None:
    bench, rented = make_bench(served.url)
    bench.hold(2)
    node = bench.start()
    bench.trains(3)
    sim.now = utc_now()
    sim.cancel(rented.run_id)
    assert bench.exit_code(node) == 0
    assert end_code(sim, rented) == "runner_stopped"


@pytest.mark.long
def test_a_second_job_leaves_and_the_first_one_trains_on(
    served: Served, make_bench: Make, sim: RunSimulation
) -> None:
    bench, rented = make_bench(served.url)
    gate = bench.hold(2)
    first = bench.start()
    bench.trains(3)
    same_machine = bench.start(job="job-2")
    other_machine = bench.start(job="job-2", HILLCLIMB_NODE_HOME=str(bench.folder / "elsewhere"))
    assert bench.exit_code(same_machine) == 3
    assert bench.exit_code(other_machine) == 3
    assert first.poll() is None
    gate.unlink()
    assert bench.exit_code(first) == 0
    assert end_code(sim, rented) == "completed"


def test_a_node_process_that_is_killed_is_followed_by_one_that_adopts_the_trainer(
    served: Served, make_bench: Make, sim: RunSimulation
) -> None:
    bench, rented = make_bench(served.url)
    gate = bench.hold(2)
    node = bench.start()
    before = bench.trainer()
    bench.trains(3)
    node.kill()
    node.wait()
    bench.attempt_dir().pid.unlink()
    second = bench.start()
    bench.until(lambda: "adopted the trainer" in bench.log.read_text())
    assert bench.trainer() == before
    gate.unlink()
    assert bench.exit_code(second) == 0
    assert end_code(sim, rented) == "completed"
    third = bench.start()
    assert bench.exit_code(third) == 0, "what is told is not told again"


def test_an_end_that_nobody_watched_is_told_by_the_next_process(
    served: Served, make_bench: Make, sim: RunSimulation
) -> None:
    bench, rented = make_bench(served.url)
    gate = bench.hold(2)
    node = bench.start()
    record = bench.trainer()
    bench.trains(3)
    node.kill()
    node.wait()
    os.kill(record.pid, signal.SIGKILL)
    bench.until(gone(record))
    gate.unlink()
    assert bench.exit_code(bench.start()) == 0
    assert end_code(sim, rented) == "trainer_crashed"


def test_the_service_dies_midway_and_the_rest_comes_through_the_blob_store(
    served: Served, make_bench: Make, sim: RunSimulation
) -> None:
    bench, rented = make_bench(served.url)
    gate = bench.hold(2)
    node = bench.start()
    bench.trains(3)
    served.server.should_exit = True
    bench.until(
        lambda: "the service does not answer; the trainer continues" in bench.log.read_text()
    )
    gate.unlink()
    assert bench.exit_code(node) == 0
    assert end_code(sim, rented) is None
    sim.now = utc_now()
    sim.advance(60)
    assert blob_channel.sweep(sim.context, now=sim.now) == 1
    attempt = sim.attempts(rented.run_id)[0]
    assert attempt.end_code == "completed"
    relay.recover_tail(sim.context, rented.run_id, 1, after=attempt.last_trainer_seq)
    attempt = sim.attempts(rented.run_id)[0]
    assert attempt.last_trainer_seq == attempt.final_trainer_seq
    assert sim.types(rented.run_id).count("step.completed") == 3


@pytest.mark.invariant("a node trains with nothing but the blob store")
def test_a_node_that_reaches_nothing_but_the_store_trains_through_the_mailbox(
    make_bench: Make, sim: RunSimulation
) -> None:
    bench, rented = make_bench("")
    gate = bench.hold(2)
    node = bench.start()

    def sweep() -> None:
        blob_channel.sweep(sim.context, now=utc_now())

    def claimed() -> bool:
        sweep()
        return sim.attempts(rented.run_id)[0].state == "claimed"

    bench.until(claimed)
    bench.trains(3)
    second = bench.start(job="job-2", HILLCLIMB_NODE_HOME=str(bench.folder / "elsewhere"))
    assert bench.exit_code(second) == 3
    before = sim.attempts(rented.run_id)[0].last_held_at
    assert before is not None

    def heard() -> bool:
        sweep()
        return (sim.attempts(rented.run_id)[0].last_held_at or before) > before

    bench.until(heard)
    sim.now = utc_now()
    sim.cancel(rented.run_id)
    sweep()
    assert bench.exit_code(node) == 0
    gate.unlink()
    sweep()
    assert end_code(sim, rented) == "runner_stopped"
    assert relay.recover_tail(sim.context, rented.run_id, 1, after=0) > 0
    plan = (bench.blobs / run_key(rented.run_id, "attempt-1/node/plan.json")).read_text()
    assert SECRETS["AWS_SECRET_ACCESS_KEY"] not in plan


def test_a_machine_that_is_not_fit_ends_the_attempt_with_every_sentence(
    served: Served, make_bench: Make, sim: RunSimulation
) -> None:
    bench, rented = make_bench(served.url)
    tools = bench.folder / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(FAKE_SMI)
    (tools / "nvidia-smi").chmod(0o755)
    more = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "SKYPILOT_NUM_GPUS_PER_NODE": "4",
        "HILLCLIMB_NODE_MIN_DISK_GB": "900000",
    }
    assert bench.exit_code(bench.start(**more)) == 0
    attempt = sim.attempts(rented.run_id)[0]
    assert attempt.end_code == "node_unfit"
    said = attempt.end_message or ""
    assert "and needs 900000" in said
    assert "nvidia-smi lists 2 GPUs, and 4 are rented" in said
    assert "GPU 1 (Fake H100) has 2 uncorrected memory errors" in said
    assert "GPU 1 (Fake H100) has 40.0 GiB in use by other processes" in said
    assert not bench.attempt_dir().pid.exists()


def test_a_run_directory_that_cannot_be_made_is_told(
    served: Served, make_bench: Make, sim: RunSimulation
) -> None:
    bench, rented = make_bench(served.url)
    bench.home.mkdir()
    (bench.home / "runs").write_text("a file where a directory should be")
    assert bench.exit_code(bench.start()) == 0
    attempt = sim.attempts(rented.run_id)[0]
    assert attempt.end_code == "trainer_crashed"
    assert "the node could not start the trainer" in (attempt.end_message or "")


def test_a_wrong_code_is_not_asked_with_again(served: Served, make_bench: Make) -> None:
    bench, _ = make_bench(served.url)
    assert bench.exit_code(bench.start(HILLCLIMB_BOOTSTRAP_TOKEN="hcx_wrong")) == 3
    assert "401" in bench.log.read_text()


def test_a_missing_variable_is_named(make_bench: Make) -> None:
    bench, _ = make_bench("http://127.0.0.1:1")
    assert bench.exit_code(bench.start(HILLCLIMB_RUN_ID="")) == 2
    assert "needs the environment variable HILLCLIMB_RUN_ID" in bench.log.read_text()
