"""Sweeps: the runs of a grid of settings and seeds, each launched once, whoever asks."""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from api.admission.campaigns import store as cells_store
from api.admission.campaigns.cells import MAX_NAME, spec_digest
from api.admission.campaigns.launch import Admit, launch_cells
from api.admission.defaults import document_with_defaults
from api.admission.experiments import store
from api.admission.experiments.errors import ExperimentRejected
from api.admission.experiments.request import SweepSpec
from api.admission.refusals.acceptance.admit import accepted_paths
from api.runs.status import RunStatus
from api.tables.studies.experiments import Experiment, ExperimentRun
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.preflight.accepted_paths import AcceptedPath
from hillclimb.spec.rules.dotted_keys import set_key
from hillclimb.spec.rules.project_defaults import DefaultValues
from hillclimb.spec.run import RunSpec

Json = dict[str, Any]
MAX_VALUE = 24
"""Characters of a value in an arm's label."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweptRun:
    """One run of a sweep: its place in the grid and its spec."""

    arm: str
    settings: Json
    """Values by dotted key."""
    spec: RunSpec

    @property
    def digest(self) -> str:
        """SHA-256 of the spec without its name: the run's idempotency key within the project."""
        return spec_digest(self.spec)


def plan_sweep(
    experiment: Experiment, sweep: SweepSpec, accepted: Sequence[AcceptedPath] = ()
) -> list[SweptRun]:
    """Return the runs in the order of the grid and the seeds.

    `accepted` are the paths that need no `experimental` on this installation.

    Raises:
        ExperimentRejected: the spec of a run is not valid, or trains nothing.
    """
    planned = list(_runs(experiment, sweep, accepted))
    labels = {json.dumps(each.settings, sort_keys=True): each.arm for each in planned}
    same = len({each.digest for each in planned}) < len(planned)
    if same or len(set(labels.values())) < len(labels):
        raise ExperimentRejected(
            "Two cells of the grid are the same run: values of one key must differ in what they do."
        )
    return planned


def launch_sweep(
    session: Session,
    experiment: Experiment,
    sweep: SweepSpec,
    admit: Admit,
    *,
    operator: DefaultValues,
) -> list[str]:
    """Add the runs of a sweep and launch those that the project does not have; return their ids.

    The experiment must be locked. A repetition adopts what it finds; a run that the service
    refuses is blocked with the reason, and the others go on.

    Raises:
        ExperimentRejected: as `plan_sweep`, or the runs contradict the experiment's roles.
    """
    applied = document_with_defaults(session, sweep.base, experiment.project_id, operator)
    with_base = sweep.model_copy(update={"base": applied.document})
    planned = plan_sweep(experiment, with_base, accepted_paths(session))
    placed = store.list_runs(session, experiment)
    known = {each.place.digest for each in placed}
    new = [each for each in planned if each.digest not in known]
    specs = {each.digest: each.spec for each in planned}
    cells_store.ensure_cells(session, experiment.project_id, specs)
    cells = cells_store.lock_cells(session, experiment.project_id, list(specs))
    _add(session, experiment, placed, new, sweep.role)
    lost = _retryable(session, experiment) if sweep.retry else frozenset()
    return launch_cells(
        session,
        [
            cell
            for cell in cells
            if (cell.run_id is None and cell.problem is None) or cell.digest in lost
        ],
        admit,
    )


def _add(
    session: Session,
    experiment: Experiment,
    placed: Sequence[store.PlacedRun],
    new: Sequence[SweptRun],
    role: str | None,
) -> None:
    roles = {each.place.arm: each.place.role for each in placed}
    if role is not None:
        chosen = dict.fromkeys((each.arm for each in new), role)
    else:
        has_baseline = store.BASELINE in roles.values()
        chosen = {}
        for each in new:
            is_first = not has_baseline and not chosen
            default = store.BASELINE if is_first else store.VARIANT
            chosen.setdefault(each.arm, roles.get(each.arm, default))
    for arm, its in chosen.items():
        store.refuse_role(placed, experiment, arm, its, added=len(new))
    first = store.next_number(placed)
    session.add_all(
        ExperimentRun(
            experiment_id=experiment.id,
            number=number,
            project_id=experiment.project_id,
            digest=each.digest,
            role=chosen[each.arm],
            arm=each.arm,
            seed=each.spec.schedule.seed,
            settings=each.settings,
        )
        for number, each in enumerate(new, first)
    )
    session.flush()


def _retryable(session: Session, experiment: Experiment) -> frozenset[str]:
    """Return the digests of the cells that were refused, or whose run ended without a result.

    Whoever asks for it may have changed what made a run fail: the machine, or the trainer.
    """
    return frozenset(
        each.place.digest
        for each in store.list_runs(session, experiment)
        if each.place.digest is not None
        and (
            each.run is None
            or RunStatus(each.run.status) in (RunStatus.FAILED, RunStatus.CANCELLED)
        )
    )


def _runs(
    experiment: Experiment, sweep: SweepSpec, accepted: Sequence[AcceptedPath]
) -> Iterator[SweptRun]:
    for values in product(*(each.values for each in sweep.over)):
        settings = dict(zip((each.key for each in sweep.over), values, strict=True))
        arm = _label(sweep.arm, settings)
        for seed in sweep.seeds:
            draft = copy.deepcopy(dict(sweep.base))
            for key, value in {**settings, "schedule.seed": seed}.items():
                _set(draft, key, value)
            draft["name"] = _name(experiment.key, arm, seed)
            spec = _validated(draft, f"{arm}, seed {seed}", accepted)
            yield SweptRun(arm=arm, settings=settings, spec=spec)


def _label(arm: str | None, settings: Json) -> str:
    parts = [arm] if arm else []
    parts += [f"{key.rpartition('.')[2]}={_short(value)}" for key, value in settings.items()]
    label = ", ".join(parts) or "base"
    return label if len(label) <= store.MAX_ARM else f"{label[: store.MAX_ARM - 9]}…{_mark(label)}"


def _short(value: Any) -> str:  # noqa: ANN401 - any JSON
    text = value if isinstance(value, str) else json.dumps(value)
    text = re.sub(r"[\x00-\x1f\x7f]", " ", text)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 9]}…{_mark(text)}"


def _mark(text: str) -> str:
    """Return what tells two long texts apart that begin alike."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _name(key: str, arm: str, seed: int) -> str:
    name = re.sub(r"[^A-Za-z0-9 ._:-]+", "-", f"{key} {arm}")
    return f"{name[: MAX_NAME - 12]} s{seed}"


def _set(draft: Json, key: str, value: Any) -> None:  # noqa: ANN401 - any JSON
    try:
        set_key(draft, key, value)
    except ValueError as error:
        raise ExperimentRejected(f"{key}: {error}.") from error


def _validated(draft: Json, place: str, accepted: Sequence[AcceptedPath]) -> RunSpec:
    try:
        spec = RunSpec.model_validate(draft, context={"accepted": accepted})
    except ValidationError as error:
        first = explain(error)[0]
        raise ExperimentRejected(f"{place}: {first.pointer or '/'}: {first.message}") from error
    dataset = spec.data.dataset
    if dataset is not None and dataset.version is None:
        raise ExperimentRejected(
            f"{place}: data.dataset names no version: write {dataset.name}@3 with its number, so"
            " that every run trains on the same tasks."
        )
    if spec.kind != "train":
        raise ExperimentRejected(
            f"{place}: a sweep trains, and kind is {spec.kind}: evaluate with a campaign."
        )
    return spec
