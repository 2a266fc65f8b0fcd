"""Refuses a run that the trainer could not continue from its checkpoint, before it has machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from api.runs.errors import CheckpointMisfit
from hillclimb.spec.data import DataSpec
from hillclimb.spec.run import RunSpec

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
