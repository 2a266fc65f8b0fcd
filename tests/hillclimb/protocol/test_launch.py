"""Messages between two versions: each side of them once as the older and once as the newer one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from hillclimb.protocol.launch import (
    BootstrapClaim,
    EndReport,
    Heartbeat,
    HeartbeatReply,
    LaunchPlan,
    NodeBeat,
    NodeReply,
    RegisteredRunner,
    RegisterRunner,
)
from hillclimb.protocol.node_messages import NodeAlive, NodeClaim, NodeEnd, NodeStop
from hillclimb.protocol.rundir import ExitRecord, PidRecord
from hillclimb.spec.data import DataSpec
from hillclimb.spec.rules.version_skew import keys_at_default
from hillclimb.spec.run import RunSpec

AT = "2026-01-01T00:00:00Z"
END = {"reason": "completed", "message": "done"}
MESSAGES: list[tuple[type[BaseModel], dict[str, Any]]] = [
    (RegisterRunner, {"name": "box", "hostname": "box"}),
    (RegisteredRunner, {"runner_id": "rnr_1", "heartbeat_interval_s": 2.0, "lease_s": 60.0}),
    (Heartbeat, {"attempts": ["att_1"]}),
    (HeartbeatReply, {"commands": [], "lease_until": AT}),
    (BootstrapClaim, {"attempt_id": "att_1", "code": "c", "nonce": "n" * 16}),
    (NodeBeat, {}),
    (NodeReply, {"action": "stop"}),
    (EndReport, END),
    (NodeClaim, {"nonce": "n" * 16}),
    (NodeAlive, {"nonce": "n" * 16, "beat": 1, "at": AT, "is_preparing": False}),
    (NodeEnd, {"nonce": "n" * 16, "end": END | {"novelty": 1}}),
    (NodeStop, {"action": "kill"}),
    (ExitRecord, {**END, "step": 1, "last_trainer_seq": 1, "at": AT}),
    (PidRecord, {"pid": 1, "started_at": 1.0}),
]


def plan(**more: object) -> dict[str, Any]:
    """A plan as a service sends it."""
    spec = RunSpec(name="wire", data=DataSpec(env_keys=("booking", "reddit")))
    made = LaunchPlan(
        run_id="run_1",
        attempt=1,
        attempt_id="att_1",
        attempt_token="secret",
        ingest_url="http://x",
        spec=spec,
        at_default=keys_at_default(spec),
    )
    return {**json.loads(made.model_dump_json()), **more}


def read(sent: dict[str, Any]) -> LaunchPlan:
    return LaunchPlan.model_validate_json(json.dumps(sent))


@pytest.mark.parametrize(
    ("model", "sent"), MESSAGES, ids=lambda each: getattr(each, "__name__", "")
)
def test_a_field_of_a_newer_version_is_left_out(
    model: type[BaseModel], sent: dict[str, Any]
) -> None:
    known = model.model_validate_json(json.dumps(sent))
    assert model.model_validate_json(json.dumps(sent | {"novelty": {"deep": [1]}})) == known


def test_an_old_runner_leaves_out_what_a_newer_service_added() -> None:
    assert read(plan(novelty=1)) == read(plan())


def test_a_new_runner_takes_the_plan_of_an_older_service() -> None:
    sent = plan()
    del sent["at_default"]
    assert read(sent).spec == read(plan()).spec


@pytest.mark.parametrize(
    "place",
    [(), ("algorithm",), ("environment",), ("backend",), ("learner",), ("guards",)],
    ids="/".join,
)
def test_an_old_runner_leaves_out_settings_that_a_newer_service_has_at_their_defaults(
    place: tuple[str, ...],
) -> None:
    sent = plan()
    section = sent["spec"]
    for key in place:
        section = section[key]
    section["novelty"] = {"deep": True}
    sent["at_default"] += [[*place, "novelty"], [*place, "novelty", "deep"]]
    assert read(sent).spec == read(plan()).spec


def test_an_old_runner_refuses_a_setting_that_it_would_not_obey() -> None:
    sent = plan()
    sent["spec"]["algorithm"]["novelty"] = 1
    with pytest.raises(ValidationError, match=r"spec\.algorithm\.novelty"):
        read(sent)


def test_every_key_at_its_default_is_named_and_no_other_one() -> None:
    spec = RunSpec(name="wire", data=DataSpec(env_keys=("booking",)), tags=("a",))
    named = set(keys_at_default(spec))
    assert ("algorithm", "policy_loss_type") in named
    assert not named & {("name",), ("tags",), ("data",), ("data", "env_keys")}


def test_commands_of_a_newer_service_are_left_out() -> None:
    commands = [{"attempt_id": "att_1", "action": "freeze"}, {"attempt_id": "a", "action": "stop"}]
    reply = HeartbeatReply.model_validate({"commands": commands, "lease_until": AT})
    assert [command.action for command in reply.commands] == ["stop"]
    assert NodeReply.model_validate({"action": "freeze"}).action is None
