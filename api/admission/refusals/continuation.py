"""The runs that a run continues, starts from or imitates: found, and refused where unfit."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from api.runs import store
from api.runs.errors import CheckpointMisfit, CheckpointNotFound
from api.tables import Run
from hillclimb.spec.data import DataSpec
from hillclimb.spec.run import RunSpec
from hillclimb.spec.training.model import NamedCheckpoint, checkpoint_source

MAX_ANCESTORS = 100
"""Runs in a row that each start from the one before (count)."""

Setting = tuple[str, Any, Any]
"""Key, value of the checkpoint's run, value of the new run."""


def refuse_misfit(spec: RunSpec, source: Mapping[str, Any], *, step: int) -> None:
    """Refuse a training run that cannot go on from step `step` of a run with the spec `source`.

    The trainer is the last judge: it also refuses what a spec does not show. A source that this
    version cannot read is left to it.

    Raises:
        CheckpointMisfit: a sentence with the setting that does not fit and what would do.
    """
    try:
        before = RunSpec.model_validate(source)
    except ValidationError:
        return
    if before.kind != spec.kind:
        raise CheckpointMisfit(
            f"The checkpoint is that of a run of kind {before.kind}, whose steps are others: leave"
            " lineage.resumed_from out, and set model.source to run:RUN to start from its weights."
        )
    if step > spec.schedule.total_steps:
        raise CheckpointMisfit(
            f"The checkpoint is at step {step}, beyond schedule.total_steps"
            f" ({spec.schedule.total_steps}): set it to more than {step}."
        )
    old, new = before.learner.lora, spec.learner.lora
    if (old and (old.rank, old.alpha, old.target_modules)) != (
        new and (new.rank, new.alpha, new.target_modules)
    ):
        raise CheckpointMisfit(
            f"The checkpoint was trained with {_adapter(before)}, and this run asks for"
            f" {_adapter(spec)}: weights and optimizer do not fit. Set learner.lora to the"
            " checkpoint's."
        )
    if spec.kind == "sft" or spec.lineage.data_order == "restart":
        return
    for key, first, second in changes_of_order(before, spec):
        raise CheckpointMisfit(
            f"The checkpoint's tasks were drawn with {key} = {first}, and this run asks for"
            f" {second}: the order of the tasks cannot continue. Set lineage.data_order to restart"
            f" (weights and optimizer continue, the tasks are drawn anew), or {key} to the"
            " checkpoint's."
        )


def changes_of_order(before: RunSpec, after: RunSpec) -> Iterator[Setting]:
    """Yield the settings that differ and on which the order of the training tasks depends."""
    pairs = zip(_order(before).items(), _order(after).values(), strict=True)
    for (key, first), second in pairs:
        if first != second:
            yield key, _as_text(first), _as_text(second)


def _order(spec: RunSpec) -> dict[str, Any]:
    data = spec.data
    return {
        "schedule.train_batch_size": spec.schedule.train_batch_size,
        "environment.provider": spec.environment.provider,
        "data.dataset": _tasks_of(data),
        "data.env_keys": sorted(data.env_keys) if data.dataset else list(data.env_keys),
        "data.modality": data.dataset and data.modality,
        "data.max_tasks": data.dataset and data.max_tasks,
        "data.train_tasks_per_env": None if data.dataset else data.num_train_tasks(),
        "data.seed": data.seed,
        "data.sampling": data.sampling,
        "data.min_samples_per_env": data.min_samples_per_env,
        "data.curriculum": data.curriculum and data.curriculum.model_dump(mode="json"),
    }


def _tasks_of(data: DataSpec) -> str | None:
    """Return the version of the dataset; its digest says whether two have the same tasks."""
    if data.dataset is None:
        return None
    return f"{data.dataset} ({(data.dataset.digest or 'not resolved')[:12]})"


def _adapter(spec: RunSpec) -> str:
    lora = spec.learner.lora
    return "no adapter" if lora is None else f"an adapter of rank {lora.rank}, alpha {lora.alpha}"


def _as_text(value: Any) -> str:  # noqa: ANN401 - any JSON
    return value if isinstance(value, str) else json.dumps(value)


def resolve_warm_start(session: Session, spec: RunSpec, project_id: str) -> RunSpec:
    """Return the spec with step and attempt of the checkpoint that `model.source` names.

    Raises:
        RunNotFound: it, or `sft.rollouts_of`, names no run of the project.
        RunImported: that run was imported.
        CheckpointNotFound: the run has no such complete checkpoint.
        CheckpointMisfit: the rollouts to imitate have the tokens of another model.
    """
    named = checkpoint_source(spec.model.source)
    if named is not None:
        source = str(_complete(session, named, project_id))
        spec = spec.model_copy(update={"model": spec.model.model_copy(update={"source": source})})
    if spec.kind == "sft" and spec.sft.rollouts_of is not None:
        _check_tokens(session, spec, spec.sft.rollouts_of, project_id)
    return spec


def _complete(session: Session, named: NamedCheckpoint, project_id: str) -> NamedCheckpoint:
    run = store.get_run(session, project_id, named.run_id)
    store.refuse_imported(run, "give its weights to another run")
    if named.step is None:
        checkpoint = store.newest_checkpoint(session, run.id)
    elif named.attempt is None:
        checkpoint = store.checkpoint_at(session, run.id, named.step)
    else:
        checkpoint = store.find_checkpoint(
            session, project_id, run.id, step=named.step, attempt=named.attempt
        )
    if checkpoint is None:
        at = "" if named.step is None else f" at step {named.step}"
        raise CheckpointNotFound(
            f"model.source is {str(named)!r}, and run {run.id} has no complete checkpoint{at}."
        )
    return NamedCheckpoint(run_id=run.id, step=checkpoint.step, attempt=checkpoint.attempt)


def _check_tokens(session: Session, spec: RunSpec, run_id: str, project_id: str) -> None:
    """Refuse rollouts of a run whose policy had another tokenizer, as far as specs tell."""
    run = store.get_run(session, project_id, run_id)
    store.refuse_imported(run, "be imitated")
    own, theirs = spec.model.source, str(run.spec["model"]["source"])
    if _origin(session, own, project_id) != _origin(session, theirs, project_id):
        raise CheckpointMisfit(
            f"The rollouts of run {run_id} are tokens of {theirs}, and this run trains {own}: set"
            f" model.source to {theirs}, or to run:{run_id}."
        )


def _origin(session: Session, source: str, project_id: str) -> str:
    """Return the model that a chain of runs started from."""
    for _ in range(MAX_ANCESTORS):
        named = checkpoint_source(source)
        run = None if named is None else session.get(Run, named.run_id)
        if run is None or run.project_id != project_id:
            return source
        source = str(run.spec["model"]["source"])
    return source
