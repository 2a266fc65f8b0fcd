"""Forks a run: a new run from its resolved spec with changes, optionally from its checkpoint."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, JsonValue, ValidationError
from sqlalchemy.orm import Session

from api.admission.refusals.acceptance.admit import accepted_paths
from api.admission.refusals.continuation import changes_of_order
from api.runs import store
from api.runs.errors import CheckpointMisfit, CheckpointNotFound, ForkRejected
from api.tables import Run
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.preflight.accepted_paths import AcceptedPath
from hillclimb.spec.rules.dotted_keys import set_key
from hillclimb.spec.run import RunSpec
from hillclimb.spec.section import Section

Json = dict[str, Any]
MAX_NAME = 120
SUFFIX = " fork"
ORDER = "lineage.data_order"
"""The only key of the section `lineage` that a fork may change."""


class ForkRequest(Section):
    """The changes that make a new run from an existing one."""

    step: Annotated[int, Field(ge=0, le=10**9)] | None = None
    """Continue from the newest checkpoint of this step, with weights and optimizer; null: start as
    the run did."""
    changes: Annotated[
        dict[Annotated[str, Field(min_length=1, max_length=300)], JsonValue], Field(max_length=64)
    ] = Field(default_factory=dict)
    """Values by dotted key: `{"optimizer.lr": 1e-4}`. With other tasks or another batch size, a
    fork from a checkpoint draws its tasks anew (`lineage.data_order: restart`)."""
    name: Annotated[str, Field(max_length=MAX_NAME)] | None = None
    """Name of the new run; null: the run's, with ` fork` appended."""


def forked_spec(session: Session, run: Run, request: ForkRequest) -> RunSpec:
    """Return the spec of the new run; it is not submitted yet.

    Raises:
        ForkRejected: a change is malformed, or the changed spec is not valid.
        CheckpointNotFound: the run has no complete checkpoint at the step.
        CheckpointMisfit: the schedule ends at the checkpoint.
    """
    draft = copy.deepcopy(dict(run.spec)) | {"name": _name(run)}
    lineage = _lineage(session, run, request)
    for dotted, value in request.changes.items():
        key = dotted.strip()
        if key.partition(".")[0] == "lineage" and key != ORDER:
            raise ForkRejected(f"{dotted}: a fork sets lineage itself, except for {ORDER}.")
        if key != ORDER:
            _set(draft, key, value)
    if request.name is not None:
        draft["name"] = request.name
    own_order = request.changes.get(ORDER)
    accepted = accepted_paths(session)
    order = {"data_order": own_order or "continue"}
    spec = _validated(draft | {"lineage": lineage | order}, accepted)
    if own_order is None and _needs_restart(session, spec, run):
        spec = _validated(draft | {"lineage": lineage | {"data_order": "restart"}}, accepted)
    if request.step is not None and request.step >= spec.schedule.total_steps:
        raise CheckpointMisfit(
            f"The schedule ends at step {spec.schedule.total_steps}, and the checkpoint is at step"
            f" {request.step}: set schedule.total_steps to more, to train on."
        )
    return spec


def _lineage(session: Session, run: Run, request: ForkRequest) -> Json:
    parent = {"run_id": run.id, "step": request.step}
    if request.step is None:
        start = (run.spec.get("lineage") or {}).get("resumed_from")
        return {"resumed_from": start, "forked_from": parent}
    checkpoint = store.checkpoint_at(session, run.id, request.step)
    if checkpoint is None:
        raise CheckpointNotFound(
            f"Run {run.id} has no complete checkpoint at step {request.step}: GET"
            f" /v1/runs/{run.id}/checkpoints lists those that it has."
        )
    source = {"run_id": run.id, "step": checkpoint.step, "attempt": checkpoint.attempt}
    return {"resumed_from": source, "forked_from": parent}


def _needs_restart(session: Session, spec: RunSpec, run: Run) -> bool:
    """Return True if the order of the checkpoint's tasks cannot continue under the spec."""
    source = spec.lineage.resumed_from
    if source is None or spec.kind != "train":
        return False
    if source.run_id != run.id and run.spec["lineage"].get("data_order") == "restart":
        return True
    writer = session.get(Run, source.run_id)
    if writer is None:  # deleted: the submission says so
        return False
    try:
        before = RunSpec.model_validate(writer.spec)
    except ValidationError:
        return False
    return any(changes_of_order(before, spec))


def _set(draft: Json, key: str, value: JsonValue) -> None:
    try:
        set_key(draft, key, value)
    except ValueError as error:
        raise ForkRejected(f"{key}: {error}.") from error


def _name(run: Run) -> str:
    name = run.name.removesuffix(SUFFIX)
    return name[: MAX_NAME - len(SUFFIX)] + SUFFIX


def _validated(draft: Json, accepted: Sequence[AcceptedPath]) -> RunSpec:
    try:
        return RunSpec.model_validate(draft, context={"accepted": accepted})
    except ValidationError as error:
        problems = explain(error)
        sentences = "; ".join(f"{each.pointer or '/'}: {each.message}" for each in problems[:3])
        raise ForkRejected(sentences, problems) from error
