"""What the worker makes of the notes of nodes, and what it leaves for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel

from api.runs.store import get_attempt, lock_run
from api.scheduling.attempts import AttemptEnd, end_attempt
from api.tables import Cluster
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.launch import EndReport, NodePlan
from hillclimb.protocol.node_messages import NodeAlive, NodeClaim, NodeEnd, NodeStop
from hillclimb.protocol.rundir import NodeFile, node_file, run_key
from tests.api.clusters.renting import NONCE, OTHER_NONCE, Rented, rent
from tests.worker.run_simulation import PROJECT, START, RunSimulation
from trainer.node.errors import AttemptOver, ServiceUnreachable
from trainer.node.transport.transport import BlobTransport
from worker.clusters import blob_channel

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
"""A node whose clock is wrong by years."""


@pytest.fixture
def cluster_sim(sim: RunSimulation) -> Rented:
    return rent(sim.context.database, PROJECT, now=START, api_reachable=False)


def key(rented: Rented, name: NodeFile) -> str:
    return run_key(rented.run_id, node_file(1, name))


def write(sim: RunSimulation, rented: Rented, name: NodeFile, note: BaseModel) -> None:
    sim.context.store.put(key(rented, name), note.model_dump_json().encode())


def sweep(sim: RunSimulation) -> int:
    sim.advance(5)
    return blob_channel.sweep(sim.context, now=sim.now)


def take(sim: RunSimulation, rented: Rented) -> BlobTransport:
    """A node takes the attempt, and the service sees it."""
    sweep(sim)
    box = BlobTransport(store=sim.context.store, run_id=rented.run_id, attempt=1, nonce=NONCE)
    assert box.claim(NONCE).attempt_id == rented.attempt_id
    sweep(sim)
    return box


def held_at(sim: RunSimulation, rented: Rented) -> datetime | None:
    return sim.attempts(rented.run_id)[0].last_held_at


def end_it(sim: RunSimulation, rented: Rented) -> None:
    end = AttemptEnd(reason=ReasonCode.CLUSTER_LOST, message="gone")
    with sim.context.database.transaction() as session:
        run = lock_run(session, rented.run_id)
        end_attempt(session, run, get_attempt(session, rented.attempt_id), end, now=sim.now)


def test_the_plan_waits_for_a_node_and_holds_nothing_secret(
    sim: RunSimulation, cluster_sim: Rented
) -> None:
    box = BlobTransport(store=sim.context.store, run_id=cluster_sim.run_id, attempt=1, nonce=NONCE)
    with pytest.raises(ServiceUnreachable, match="does not exist yet"):
        box.claim(NONCE)
    assert sweep(sim) == 1
    plan = box.claim(NONCE)
    assert isinstance(plan, NodePlan)
    assert (plan.attempt_token, plan.ingest_url, plan.secrets) == ("", "", {})


def test_one_job_gets_the_plan_and_may_ask_again(sim: RunSimulation, cluster_sim: Rented) -> None:
    box = take(sim, cluster_sim)
    assert sim.attempts(cluster_sim.run_id)[0].state == "claimed"
    assert box.claim(NONCE).attempt == 1
    with pytest.raises(AttemptOver, match="another job"):
        box.claim(OTHER_NONCE)


def test_a_job_that_takes_the_plan_of_an_attempt_that_is_over_is_told_to_leave(
    sim: RunSimulation, cluster_sim: Rented
) -> None:
    sweep(sim)
    end_it(sim, cluster_sim)
    box = BlobTransport(store=sim.context.store, run_id=cluster_sim.run_id, attempt=1, nonce=NONCE)
    assert box.claim(NONCE).attempt == 1
    sweep(sim)
    assert box.heartbeat(is_preparing=True) == "kill"
    assert sim.attempts(cluster_sim.run_id)[0].claimed_at is None


def test_a_beat_counts_when_its_number_rises_whatever_the_nodes_clock_says(
    sim: RunSimulation, cluster_sim: Rented
) -> None:
    take(sim, cluster_sim)
    heard = []
    for beat in (7, 7, 6, 8):
        alive = NodeAlive(nonce=NONCE, beat=beat, at=LONG_AGO, is_preparing=False)
        write(sim, cluster_sim, "alive", alive)
        sweep(sim)
        heard.append(held_at(sim, cluster_sim) == sim.now)
    assert heard == [True, False, False, True]


def test_the_notes_of_another_job_do_not_count(sim: RunSimulation, cluster_sim: Rented) -> None:
    take(sim, cluster_sim)
    before = held_at(sim, cluster_sim)
    alive = NodeAlive(nonce=OTHER_NONCE, beat=9, at=LONG_AGO, is_preparing=False)
    write(sim, cluster_sim, "alive", alive)
    sweep(sim)
    sim.context.store.delete_prefix(key(cluster_sim, "alive"))
    end = EndReport(reason=ReasonCode.COMPLETED, message="not ours", last_trainer_seq=0)
    write(sim, cluster_sim, "end", NodeEnd(nonce=OTHER_NONCE, end=end))
    sweep(sim)
    assert held_at(sim, cluster_sim) == before
    assert sim.attempts(cluster_sim.run_id)[0].end_code is None


def test_a_node_that_prepares_moves_the_deadline_for_starting(
    sim: RunSimulation, cluster_sim: Rented
) -> None:
    box = take(sim, cluster_sim)
    before = sim.run(cluster_sim.run_id).deadline_at
    assert before is not None
    box.heartbeat(is_preparing=True)
    sweep(sim)
    after = sim.run(cluster_sim.run_id).deadline_at
    assert after is not None
    assert after > before


def test_a_cancelled_run_is_stopped_and_one_that_is_over_is_killed(
    sim: RunSimulation, cluster_sim: Rented
) -> None:
    box = take(sim, cluster_sim)
    assert box.heartbeat(is_preparing=False) is None
    sim.cancel(cluster_sim.run_id)
    sweep(sim)
    assert box.heartbeat(is_preparing=False) == "stop"
    end_it(sim, cluster_sim)
    sweep(sim)
    assert box.heartbeat(is_preparing=False) == "kill"


def test_an_end_is_read_once_and_for_all(sim: RunSimulation, cluster_sim: Rented) -> None:
    box = take(sim, cluster_sim)
    box.report_end(EndReport(reason=ReasonCode.STORAGE_FULL, message="full", last_trainer_seq=0))
    for _ in range(2):
        sweep(sim)
    attempt = sim.attempts(cluster_sim.run_id)[0]
    assert (attempt.end_code, attempt.end_message) == ("storage_full", "full")
    assert sim.types(cluster_sim.run_id).count("attempt.ended") == 1


def test_a_torn_note_is_as_if_it_was_not_there(sim: RunSimulation, cluster_sim: Rented) -> None:
    take(sim, cluster_sim)
    before = held_at(sim, cluster_sim)
    for name in ("alive", "end", "stop"):
        sim.context.store.put(key(cluster_sim, name), b'{"nonce": "')  # type: ignore[arg-type]
    assert sweep(sim) == 1
    assert held_at(sim, cluster_sim) == before


def test_a_node_that_can_speak_is_looked_for_only_when_it_is_silent(sim: RunSimulation) -> None:
    near = rent(sim.context.database, PROJECT, now=START)
    assert sweep(sim) == 0
    write(sim, near, "claim", NodeClaim(nonce=NONCE))
    assert sweep(sim) == 0, "the code alone lets it in"
    assert not sim.context.store.exists(key(near, "plan"))


def test_the_mailbox_of_a_gone_cluster_is_left_alone(
    sim: RunSimulation, cluster_sim: Rented
) -> None:
    take(sim, cluster_sim)
    with sim.context.database.transaction() as session:
        session.get_one(Cluster, cluster_sim.cluster_id).state = "gone"
    write(sim, cluster_sim, "stop", NodeStop(action="stop"))
    sim.advance(timedelta(hours=1).total_seconds())
    assert sweep(sim) == 0
