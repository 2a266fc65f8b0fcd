"""From the dataset that a spec names to the version that its run gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy.orm import Session

from api.admission.dataset_rules import MEASURED, admit, listed
from api.admission.env_keys import refuse_strange_keys
from api.datasets import store
from api.datasets.errors import DatasetNotFound, DatasetUnusable
from api.datasets.tool_token_counts import tools_like
from api.tables import Dataset, DatasetExclusion, DatasetVersion
from hillclimb.datasets.lint.blocking import MIN_DIFFERENT
from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.data import DatasetRef
from hillclimb.spec.run import RunSpec

TRAINED_ON = ("train", "probe")
"""Kinds of runs that draw training tasks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """A spec whose dataset is a certain version, and what its user should know about that."""

    spec: RunSpec
    warnings: tuple[str, ...] = ()
    """What the run does otherwise than one might expect; stored with it as events."""
    lint: tuple[str, ...] = ()
    """What is wrong with the version itself; stored with the run too."""
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
    """Return the spec with the version's id and digest, and with the environments the run gets.

    An environment that is excluded or in quarantine is left out with a warning where the spec
    names no environments. Where it names that one, it is refused for training and evaluation, and
    let through with a warning for other kinds of runs: they find out whether it works again; so is
    one that goes on after its end (`is_resumed`), whose environments were named for it then, and
    one that goes on from a run of these same environments (`keeps_environments`), whose result
    would mean something else without one of them. A spec without a dataset comes back as it is.

    Raises:
        DatasetUnusable: the version does not exist, or the run cannot work with it.
    """
    reference = spec.data.dataset
    if reference is None:
        return Resolution(spec=spec)
    dataset, version = _find(session, project_id, reference)
    _check_same(reference, version)
    in_force = store.list_exclusions(session, dataset, now=now)
    refuses = spec.kind in MEASURED and not is_resumed and not keeps_environments
    keys, warnings = _choose_environments(spec, dataset, version, in_force, refuses=refuses)
    resolved = _with_version(spec, dataset, version, keys)
    table = {key: version.facts["envs"][key] for key in keys}
    _check_tasks(resolved, reference, table)
    measured = tools_like(session, project_id, resolved)
    lint = admit(resolved, version, table, measured, is_resumed=is_resumed)
    warnings += _worth_knowing(dataset, version, table, in_force)
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
    """Refuse a reference that was filled in for another version than the one it now names."""
    for name, requested, actual in (
        ("id", reference.id, version.id),
        ("digest", reference.digest, version.digest),
    ):
        if requested is not None and requested != actual:
            raise DatasetUnusable(
                f"data.dataset.{name} is {requested}, but {reference} has {actual}: leave id and"
                " digest out, the service fills them in"
            )


def _choose_environments(
    spec: RunSpec,
    dataset: Dataset,
    version: DatasetVersion,
    in_force: Sequence[DatasetExclusion],
    *,
    refuses: bool,
) -> tuple[list[str], list[str]]:
    """Return the environments the run gets and a warning for each that was left out."""
    there: Mapping[str, Any] = version.facts["envs"]
    named = spec.data.env_keys
    strangers = [key for key in named if key not in there]
    if strangers:
        raise DatasetUnusable(
            f"data.env_keys names {listed(strangers)}, which {spec.data.dataset} does not have; it"
            f" has {listed(sorted(there))}"
        )
    barred = {each.key: each for each in in_force if each.scope == "env" and each.key in there}
    refused = next((barred[key] for key in named if key in barred), None)
    if refused is not None and refuses:
        raise DatasetUnusable(
            f"data.env_keys names {refused.key}, which is {_barred(refused)}: leave it out, or lift"
            f" that with `hillclimb datasets include {dataset.name} --env {refused.key}`"
        )
    chosen = list(named) or [key for key in sorted(there) if key not in barred]
    if not chosen:
        raise DatasetUnusable(
            f"every environment of {spec.data.dataset} is excluded or in quarantine:"
            f" {listed([f'{key} is {_barred(each)}' for key, each in sorted(barred.items())])}"
        )
    verb = "is taken though" if named else "is left out:"
    keys = sorted(set(barred) & set(chosen)) if named else sorted(barred)
    return chosen, [f"{key} {verb} it is {_barred(barred[key])}." for key in keys]


def _barred(exclusion: DatasetExclusion) -> str:
    ends = exclusion.expires_at
    state = "excluded" if ends is None else f"in quarantine until {ends:%Y-%m-%d %H:%M} UTC"
    return f"{state} ({exclusion.reason})"


def _with_version(
    spec: RunSpec, dataset: Dataset, version: DatasetVersion, keys: Sequence[str]
) -> RunSpec:
    """Fill in version and environments, and check the spec as if its user had."""
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
    """Refuse what the version's numbers of tasks do not serve, and modalities we cannot show."""
    refuse_strange_keys(spec, reference, table)
    for key, facts in table.items():
        images = {name: n for name, n in facts["modalities"].items() if name != "tool_use"}
        for modality, count in images.items():
            raise DatasetUnusable(
                f"{count} tasks of {key} in {reference} are {modality}: they need an image"
                " processor and image tokens, which the trainer does not have yet. Build a version"
                " of tool_use tasks only, or leave the environment out of data.env_keys"
            )
    train = {key: facts["train"] for key, facts in table.items() if facts["train"]}
    num_eval = sum(facts["eval"] for facts in table.values())
    if not num_eval and spec.kind in MEASURED:
        raise DatasetUnusable(
            f"{reference} has no eval task in {listed(list(table))}: nothing could be measured."
            " Build a version with a larger split.eval_ratio or a smaller split.min_eval_per_env,"
            " under a fresh name where earlier versions trained on its tasks"
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


def _worth_knowing(
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
            f"{listed(without)} {'has' if len(without) == 1 else 'have'} no eval task: what is"
            " learned there is not measured."
        )
    if few:
        warnings.append(
            f"fewer than {MIN_DIFFERENT} different eval tasks in {listed(few)}: no change shows"
            " there by itself."
        )
    later = [each for each in in_force if each.scope == "task"]
    later = [each for each in later if each.created_at > version.created_at]
    if later:
        warnings.append(
            f"{len(later)} exclusion(s) of {dataset.name} are newer than version {version.number},"
            " which still has those tasks unless they were never in it: create a new version to"
            " leave them out."
        )
    return warnings
