"""What the worker makes of the notes of nodes, and what it leaves for them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import BaseModel

from api.runs.attempts import End, end_attempt
from api.runs.store import get_attempt, lock_run
from api.tables import Cluster
from tests.api.clusters.renting import NONCE, OTHER_NONCE, Rented, rent
from tests.worker.scene import PROJECT, START, Scene
from trainer.contract.launch import AttemptEnd, NodePlan
from trainer.contract.node import NodeAlive, NodeEnd, NodeStop, NodeTaken
from trainer.contract.reasons import ReasonCode
from trainer.contract.rundir import NodeFile, node_file, run_key
from trainer.node.errors import AttemptOver, ServiceUnreachable
from trainer.node.service import Mailbox
from worker.clusters import mailbox

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)
"""A node whose clock is wrong by years."""


@pytest.fixture
def far(scene: Scene) -> Rented:
    return rent(scene.parts.database, PROJECT, now=START, api_reachable=False)


def key(rented: Rented, name: NodeFile) -> str:
    return run_key(rented.run_id, node_file(1, name))


def write(scene: Scene, rented: Rented, name: NodeFile, note: BaseModel) -> None:
    scene.parts.store.put(key(rented, name), note.model_dump_json().encode())


def sweep(scene: Scene) -> int:
    scene.later(5)
    return mailbox.sweep(scene.parts, now=scene.now)


def take(scene: Scene, rented: Rented) -> Mailbox:
    """A node takes the attempt, and the service sees it."""
    sweep(scene)
    box = Mailbox(store=scene.parts.store, run_id=rented.run_id, attempt=1, nonce=NONCE)
    assert box.exchange(NONCE).attempt_id == rented.attempt_id
    sweep(scene)
    return box


def held_at(scene: Scene, rented: Rented) -> datetime | None:
    return scene.attempts(rented.run_id)[0].last_held_at


def end_it(scene: Scene, rented: Rented) -> None:
    end = End(reason=ReasonCode.CLUSTER_LOST, message="gone")
    with scene.parts.database.transaction() as session:
        run = lock_run(session, rented.run_id)
        end_attempt(session, run, get_attempt(session, rented.attempt_id), end, now=scene.now)


def test_the_plan_waits_for_a_node_and_holds_nothing_secret(scene: Scene, far: Rented) -> None:
    box = Mailbox(store=scene.parts.store, run_id=far.run_id, attempt=1, nonce=NONCE)
    with pytest.raises(ServiceUnreachable, match="there is no"):
        box.exchange(NONCE)
    assert sweep(scene) == 1
    plan = box.exchange(NONCE)
    assert isinstance(plan, NodePlan)
    assert (plan.attempt_token, plan.ingest_url, plan.secrets) == ("", "", {})


def test_one_job_gets_the_plan_and_may_ask_again(scene: Scene, far: Rented) -> None:
    box = take(scene, far)
    assert scene.attempts(far.run_id)[0].state == "claimed"
    assert box.exchange(NONCE).attempt == 1
    with pytest.raises(AttemptOver, match="another job"):
        box.exchange(OTHER_NONCE)


def test_a_job_that_takes_the_plan_of_an_attempt_that_is_over_is_told_to_leave(
    scene: Scene, far: Rented
) -> None:
    sweep(scene)
    end_it(scene, far)
    box = Mailbox(store=scene.parts.store, run_id=far.run_id, attempt=1, nonce=NONCE)
    assert box.exchange(NONCE).attempt == 1
    sweep(scene)
    assert box.heartbeat(is_preparing=True) == "kill"
    assert scene.attempts(far.run_id)[0].claimed_at is None


def test_a_beat_counts_when_its_number_rises_whatever_the_nodes_clock_says(
    scene: Scene, far: Rented
) -> None:
    take(scene, far)
    heard = []
    for beat in (7, 7, 6, 8):
        alive = NodeAlive(nonce=NONCE, beat=beat, at=LONG_AGO, is_preparing=False)
        write(scene, far, "alive", alive)
        sweep(scene)
        heard.append(held_at(scene, far) == scene.now)
    assert heard == [True, False, False, True]


def test_the_notes_of_another_job_do_not_count(scene: Scene, far: Rented) -> None:
    take(scene, far)
    before = held_at(scene, far)
    alive = NodeAlive(nonce=OTHER_NONCE, beat=9, at=LONG_AGO, is_preparing=False)
    write(scene, far, "alive", alive)
    sweep(scene)
    scene.parts.store.delete_prefix(key(far, "alive"))
    end = AttemptEnd(reason=ReasonCode.COMPLETED, message="not ours", last_trainer_seq=0)
    write(scene, far, "end", NodeEnd(nonce=OTHER_NONCE, end=end))
    sweep(scene)
    assert held_at(scene, far) == before
    assert scene.attempts(far.run_id)[0].end_code is None


def test_a_node_that_prepares_moves_the_deadline_for_starting(scene: Scene, far: Rented) -> None:
    box = take(scene, far)
    before = scene.run(far.run_id).deadline_at
    assert before is not None
    box.heartbeat(is_preparing=True)
    sweep(scene)
    after = scene.run(far.run_id).deadline_at
    assert after is not None
    assert after > before


def test_a_cancelled_run_is_stopped_and_one_that_is_over_is_killed(
    scene: Scene, far: Rented
) -> None:
    box = take(scene, far)
    assert box.heartbeat(is_preparing=False) is None
    scene.cancel(far.run_id)
    sweep(scene)
    assert box.heartbeat(is_preparing=False) == "stop"
    end_it(scene, far)
    sweep(scene)
    assert box.heartbeat(is_preparing=False) == "kill"


def test_an_end_is_read_once_and_for_all(scene: Scene, far: Rented) -> None:
    box = take(scene, far)
    box.report_end(AttemptEnd(reason=ReasonCode.STORAGE_FULL, message="full", last_trainer_seq=0))
    for _ in range(2):
        sweep(scene)
    attempt = scene.attempts(far.run_id)[0]
    assert (attempt.end_code, attempt.end_message) == ("storage_full", "full")
    assert scene.types(far.run_id).count("attempt.ended") == 1


def test_a_torn_note_is_as_if_it_was_not_there(scene: Scene, far: Rented) -> None:
    take(scene, far)
    before = held_at(scene, far)
    for name in ("alive", "end", "stop"):
        scene.parts.store.put(key(far, name), b'{"nonce": "')  # type: ignore[arg-type]
    assert sweep(scene) == 1
    assert held_at(scene, far) == before


def test_a_node_that_can_speak_is_looked_for_only_when_it_is_silent(scene: Scene) -> None:
    near = rent(scene.parts.database, PROJECT, now=START)
    assert sweep(scene) == 0
    write(scene, near, "taken", NodeTaken(nonce=NONCE))
    assert sweep(scene) == 0, "the code alone lets it in"
    assert not scene.parts.store.exists(key(near, "plan"))


def test_the_mailbox_of_a_gone_cluster_is_left_alone(scene: Scene, far: Rented) -> None:
    take(scene, far)
    with scene.parts.database.transaction() as session:
        session.get_one(Cluster, far.cluster_id).state = "gone"
    write(scene, far, "stop", NodeStop(action="stop"))
    scene.later(timedelta(hours=1).total_seconds())
    assert sweep(scene) == 0
