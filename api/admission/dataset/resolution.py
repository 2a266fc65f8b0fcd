"""Resolves the dataset of a spec to the version and environments of its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from api.admission.dataset.env_keys import refuse_foreign_keys
from api.admission.dataset.limits import counts_of_modality, limit_train, without_tasks
from api.admission.dataset.rules import MEASURED, admit, listed
from api.datasets import store
from api.datasets.errors import DatasetNotFound, DatasetUnusable
from api.datasets.tool_token_counts import tool_token_counts
from api.tables import Dataset, DatasetExclusion, DatasetVersion
from hillclimb.datasets.fit_schedule import fit_generated, fit_schedule
from hillclimb.datasets.lint.blocking import MIN_DIFFERENT
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.data import DatasetRef
from hillclimb.spec.run import RunSpec

TRAINED_ON = ("train", "probe")
"""Kinds of runs that draw training tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A spec with a fixed dataset version, and the warnings for its user."""

    spec: RunSpec
    warnings: tuple[str, ...] = ()
    """Deviations of the run from its spec; stored with it as events."""
    lint: tuple[str, ...] = ()
    """Lint errors of the version; stored as events too."""
    dataset: dict[str, Any] | None = None
    """The version with its environments, as a plan shows them; null without a dataset."""


def resolve(
    session: Session,
    spec: RunSpec,
    *,
    project_id: str,
    now: datetime,
    is_resumed: bool = False,
    keeps_environments: bool = False,
) -> Resolution:
    """Return the spec with the version's id and digest and with the run's environments.

    An excluded or quarantined environment is left out with a warning if the spec names no
    environments. If the spec names it, training and evaluation runs are rejected; three cases get
    only a warning:

    - other kinds of runs, which test whether the environment works again;
    - a resumed run (`is_resumed`), whose environments were fixed when it was submitted;
    - a run that continues another one with the same environments (`keeps_environments`), whose
      figures would not compare without one of them.

    `data.modality` and `data.max_tasks` limit the tasks that are counted, and the schedule is
    fitted to them (`fit_schedule`), also where tasks are generated.

    Raises:
        DatasetUnusable: the version does not exist, or the run cannot use it.
    """
    reference = spec.data.dataset
    if reference is None:
        generated = fit_generated(spec)
        return Resolution(spec=generated.spec, warnings=generated.changes)
    dataset, version = _find(session, project_id, reference)
    _check_same(reference, version)
    in_force = store.list_exclusions(session, dataset, now=now)
    refuses = spec.kind in MEASURED and not is_resumed and not keeps_environments
    available = counts_of_modality(spec, version.facts["envs"])
    keys, warnings = _choose_environments(spec, dataset, available, in_force, refuses=refuses)
    if not spec.data.env_keys:
        warnings += without_tasks(spec, version.facts["envs"], available)
    resolved = _with_version(spec, dataset, version, keys)
    refuse_foreign_keys(resolved, reference, {key: version.facts["envs"][key] for key in keys})
    table = limit_train(resolved, {key: available[key] for key in keys})
    _check_tasks(resolved, reference, table)
    fitted = fit_schedule(resolved, {key: facts["train"] for key, facts in table.items()})
    resolved, warnings = fitted.spec, [*warnings, *fitted.changes]
    measured = tool_token_counts(session, project_id, resolved)
    lint = admit(resolved, version, table, measured, is_resumed=is_resumed)
    warnings += _task_warnings(dataset, version, table, in_force)
    return Resolution(
        spec=resolved,
        warnings=tuple(warnings),
        lint=lint,
        dataset={"name": dataset.name, "version": version.number, "id": version.id, "envs": table},
    )


def _find(
    session: Session, project_id: str, reference: DatasetRef
) -> tuple[Dataset, DatasetVersion]:
    try:
        return store.find_version(session, project_id, reference.name, reference.version)
    except DatasetNotFound as error:
        raise DatasetUnusable(f"data.dataset: {error}") from error


def _check_same(reference: DatasetRef, version: DatasetVersion) -> None:
    """Reject a reference whose id or digest belongs to another version."""
    for name, requested, actual in (
        ("id", reference.id, version.id),
        ("digest", reference.digest, version.digest),
    ):
        if requested is not None and requested != actual:
            raise DatasetUnusable(
                f"data.dataset.{name} is {requested}, but {reference} has {actual}: omit id and"
                " digest, the service fills them in"
            )


def _choose_environments(
    spec: RunSpec,
    dataset: Dataset,
    available: Mapping[str, Any],
    in_force: Sequence[DatasetExclusion],
    *,
    refuses: bool,
) -> tuple[list[str], list[str]]:
    """Return the run's environments of the available ones, and a warning for each barred one."""
    named = spec.data.env_keys
    unknown = [key for key in named if key not in available]
    if unknown:
        raise DatasetUnusable(
            f"data.env_keys names {listed(unknown)}, which {spec.data.dataset} does not have; it"
            f" has {listed(sorted(available))}"
        )
    barred = {
        exclusion.key: exclusion
        for exclusion in in_force
        if exclusion.scope == "env" and exclusion.key in available
    }
    refused = next((barred[key] for key in named if key in barred), None)
    if refused is not None and refuses:
        raise DatasetUnusable(
            f"data.env_keys names {refused.key}, which is {_barred(refused)}: remove it, or lift"
            f" the exclusion with `hillclimb datasets include {dataset.name} --env {refused.key}`"
        )
    chosen = list(named) or [key for key in sorted(available) if key not in barred]
    if not chosen:
        reasons = [f"{key} is {_barred(exclusion)}" for key, exclusion in sorted(barred.items())]
        raise DatasetUnusable(
            f"every environment of {spec.data.dataset} is excluded or in quarantine:"
            f" {listed(reasons)}"
        )
    verb = "is used although" if named else "is left out:"
    keys = sorted(set(barred) & set(chosen)) if named else sorted(barred)
    return chosen, [f"{key} {verb} it is {_barred(barred[key])}." for key in keys]


def _barred(exclusion: DatasetExclusion) -> str:
    ends = exclusion.expires_at
    state = "excluded" if ends is None else f"in quarantine until {ends:%Y-%m-%d %H:%M} UTC"
    return f"{state} ({exclusion.reason})"


def _with_version(
    spec: RunSpec, dataset: Dataset, version: DatasetVersion, keys: Sequence[str]
) -> RunSpec:
    """Return the spec with version and environments filled in, validated again."""
    body = spec.model_dump(mode="json")
    body["data"]["env_keys"] = list(keys)
    body["data"]["dataset"] = {
        "name": dataset.name,
        "version": version.number,
        "id": version.id,
        "digest": version.digest,
    }
    try:
        return RunSpec.model_validate(body)
    except ValidationError as error:
        sentences = "; ".join(problem.message for problem in explain(error))
        raise DatasetUnusable(f"with the environments of {spec.data.dataset}: {sentences}") from (
            error
        )


def _check_tasks(spec: RunSpec, reference: DatasetRef, table: Mapping[str, Any]) -> None:
    """Reject a version with too few tasks for the spec, or with modalities we cannot render."""
    for key, facts in table.items():
        images = {name: n for name, n in facts["modalities"].items() if name != "tool_use"}
        for modality, count in images.items():
            raise DatasetUnusable(
                f"{count} tasks of {key} in {reference} are {modality}: they need an image"
                " processor and image tokens, which the trainer does not have yet. Build a version"
                " of tool_use tasks only, set data.modality to tool_use, or remove the environment"
                " from data.env_keys"
            )
    train = {key: facts["train"] for key, facts in table.items() if facts["train"]}
    num_eval = sum(facts["eval"] for facts in table.values())
    is_test = spec.kind == "train" and spec.data.max_tasks is not None
    if not num_eval and spec.kind in MEASURED and not is_test:
        raise DatasetUnusable(
            f"{reference} has no eval task in {listed(list(table))}: nothing could be measured."
            " Build a version with a larger split.eval_ratio or a smaller split.min_eval_per_env,"
            " under a new name if earlier versions trained on its tasks; or set data.max_tasks,"
            " for a short test that measures nothing"
        )
    if not train and spec.kind in TRAINED_ON:
        raise DatasetUnusable(f"{reference} has no training task in {listed(list(table))}")
    try:
        if spec.kind == "train":
            spec.check_tasks(train, num_eval)
        elif spec.kind == "eval":
            spec.check_evaluation(num_eval)
    except ValueError as error:
        raise DatasetUnusable(f"with the tasks of {reference}: {error}") from error


def _task_warnings(
    dataset: Dataset,
    version: DatasetVersion,
    table: Mapping[str, Any],
    in_force: Sequence[DatasetExclusion],
) -> list[str]:
    without = [key for key, facts in table.items() if not facts["eval"]]
    few = [
        f"{key} ({facts['unique_eval']})"
        for key, facts in table.items()
        if 0 < facts["unique_eval"] < MIN_DIFFERENT
    ]
    warnings = []
    if without:
        warnings.append(
            f"{listed(without)} {'has' if len(without) == 1 else 'have'} no eval task:"
            " progress there is not measured."
        )
    if few:
        warnings.append(
            f"fewer than {MIN_DIFFERENT} different eval tasks in {listed(few)}: too few to"
            " prove a change there."
        )
    later = [
        exclusion
        for exclusion in in_force
        if exclusion.scope == "task" and exclusion.created_at > version.created_at
    ]
    if later:
        warnings.append(
            f"{len(later)} exclusion(s) of {dataset.name} are newer than version {version.number},"
            " which may still have those tasks: create a new version to leave them out."
        )
    return warnings
