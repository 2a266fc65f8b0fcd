"""Expansion of a campaign into the run specs of its cells."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from api.admission.campaigns.errors import CampaignRejected
from api.admission.campaigns.request import CampaignModel, CampaignSpec
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.data import GENERATOR_KEYS
from hillclimb.spec.preflight.accepted_paths import AcceptedPath
from hillclimb.spec.run import RunSpec

Json = dict[str, Any]
MAX_NAME = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSource:
    """A checkpoint and the resolved spec of the run that wrote it."""

    run_id: str
    step: int
    attempt: int
    spec: Mapping[str, Any]


FindCheckpoint = Callable[[str, int], CheckpointSource]
"""Returns the newest checkpoint of a run's step; raises CheckpointNotFound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCell:
    """One cell: its place in the campaign and the run that fills it."""

    model: str
    dataset: str | None
    repeat: int
    """From 1."""
    spec: RunSpec

    @property
    def digest(self) -> str:
        """SHA-256 of the spec without its name: equal evaluations have equal digests."""
        return spec_digest(self.spec)


def spec_digest(spec: RunSpec) -> str:
    """Return the SHA-256 of a spec without its name: by it a project has each cell once.

    The evidence that the service writes into a spec does not count either.
    """
    facts = spec.model_dump(mode="json", exclude={"name", "accepted"})
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def plan_cells(
    campaign: CampaignSpec,
    find_checkpoint: FindCheckpoint,
    accepted: Sequence[AcceptedPath] = (),
) -> tuple[PlannedCell, ...]:
    """Return the cells in the order of models, datasets and repeats.

    `accepted` are the paths that need no `experimental` on this installation.

    Raises:
        CampaignRejected: the run spec of a cell is not valid.
        CheckpointNotFound: as `find_checkpoint`.
    """
    return tuple(_cells(campaign, find_checkpoint, accepted))


def _cells(
    campaign: CampaignSpec, find_checkpoint: FindCheckpoint, accepted: Sequence[AcceptedPath]
) -> Iterator[PlannedCell]:
    for model in campaign.models:
        with_model = _with_model(campaign.base, model, find_checkpoint)
        for dataset in campaign.datasets or (None,):
            with_tasks = _with_dataset(with_model, dataset)
            for repeat in range(1, campaign.repeats + 1):
                place = f"{model.name}, {dataset or 'the tasks of base'}, repeat {repeat}"
                draft = _with_decodings(with_tasks, campaign)
                draft["name"] = _name(campaign, model, dataset, repeat)
                spec = _repeated(_validated(draft, place, accepted), repeat)
                if spec is not None:
                    yield PlannedCell(model=model.name, dataset=dataset, repeat=repeat, spec=spec)


def _with_model(base: Json, model: CampaignModel, find_checkpoint: FindCheckpoint) -> Json:
    draft = {**base, "kind": "eval"}
    if model.checkpoint is None:
        draft.pop("lineage", None)
        return draft | {"model": {**_section(base, "model"), "source": model.source}}
    run_id, _, step = model.checkpoint.partition("@")
    source = find_checkpoint(run_id, int(step))
    resumed = {"run_id": source.run_id, "step": source.step, "attempt": source.attempt}
    own = {name: source.spec[name] for name in ("model", "learner")}
    return draft | own | {"lineage": {"resumed_from": resumed}}


def _with_dataset(draft: Json, dataset: str | None) -> Json:
    if dataset is None:
        return draft
    own = _section(draft, "data").items()
    data = {key: value for key, value in own if key not in GENERATOR_KEYS}
    return draft | {"data": data | {"dataset": dataset}}


def _with_decodings(draft: Json, campaign: CampaignSpec) -> Json:
    settings = {**_section(draft, "eval"), "interval_decodings": None}
    if campaign.decodings:
        settings["decodings"] = [each.model_dump(mode="json") for each in campaign.decodings]
    return draft | {"eval": settings}


def _section(draft: Json, name: str) -> Json:
    value = draft.get(name)
    return value if isinstance(value, dict) else {}


def _name(campaign: CampaignSpec, model: CampaignModel, dataset: str | None, repeat: int) -> str:
    parts = [campaign.name, model.name, *([dataset.replace("@", ":")] if dataset else [])]
    return f"{' '.join(parts)[: MAX_NAME - 6]} r{repeat}"


def _validated(draft: Json, place: str, accepted: Sequence[AcceptedPath]) -> RunSpec:
    try:
        return RunSpec.model_validate(draft, context={"accepted": accepted})
    except ValidationError as error:
        first = explain(error)[0]
        raise CampaignRejected(f"{place}: {first.pointer or '/'}: {first.message}") from error


def _repeated(spec: RunSpec, repeat: int) -> RunSpec | None:
    """Return the spec with the repeat's sampling seed; None if only greedy decodings are left."""
    if repeat == 1:
        return spec
    sampled = tuple(each for each in spec.eval.decodings if each.temperature > 0.0)
    if not sampled:
        return None
    schedule = spec.schedule.model_copy(update={"seed": spec.schedule.seed + repeat - 1})
    settings = spec.eval.model_copy(update={"decodings": sampled})
    return spec.model_copy(update={"schedule": schedule, "eval": settings})
