"""From a dataset's name in a spec to the version and the environments that a run gets."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.admission.dataset.resolution import Resolution, resolve
from api.datasets.errors import DatasetUnusable
from api.tables import Dataset, DatasetExclusion, DatasetVersion
from api.tables.database import Database
from tests.api.fixtures.migrated import OTHER_PROJECT, PROJECT
from tests.fixtures.factories import make_spec

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def env(
    train: int = 20, evals: int = 6, modality: str = "tool_use", unique: int | None = None
) -> dict[str, Any]:
    return {
        "train": train,
        "eval": evals,
        "unique_eval": evals if unique is None else unique,
        "modalities": {modality: train + evals},
    }


ENVS = {
    "booking": env(),
    "github": env(),
    "hubspot": env(unique=1),
    "reddit": env(evals=0),
    "outlook": env(train=0),
    "ticketmaster": env(modality="computer_use"),
    "zillow": env(),
}
WITHOUT_OUTLOOK = {key: facts for key, facts in ENVS.items() if key != "outlook"}


@pytest.fixture(autouse=True)
def _stored(database: Database) -> None:
    with database.transaction() as session:
        names = {"id": "ds_1", "project_id": PROJECT, "name": "fleet"}
        session.add(Dataset(**names, num_versions=2, created_by="key:me"))
        session.flush()
        for number in (1, 2):
            found = {"severity": "error", "env_key": "zillow", "message": "2 of 6", "code": "leak"}
            minor = {"severity": "warning", "env_key": None, "message": "x", "code": "copies"}
            tools = found | {"env_key": "booking", "code": "tools_over_budget"}
            session.add(
                DatasetVersion(
                    id=f"dsv_{number}",
                    project_id=PROJECT,
                    dataset_id="ds_1",
                    number=number,
                    digest=f"{number}" * 64,
                    identity=f"{number}",
                    source="upload",
                    num_tasks=125,
                    num_train=80,
                    num_eval=15,
                    size_bytes=1,
                    options={},
                    facts={"envs": ENVS if number == 1 else WITHOUT_OUTLOOK},
                    lint={"findings": [found, tools, minor]},
                    created_by="key:me",
                    created_at=NOW - timedelta(days=1),
                )
            )


def bar(database: Database, key: str, *, days: float | None = None, scope: str = "env") -> None:
    with database.transaction() as session:
        session.add(
            DatasetExclusion(
                id=f"dsx_{key}",
                project_id=PROJECT,
                dataset_id="ds_1",
                scope=scope,
                key=key,
                reason="it answers 502",
                source="user",
                expires_at=None if days is None else NOW + timedelta(days=days),
                created_by="key:me",
                created_at=NOW,
            )
        )


def resolved(database: Database, project: str = PROJECT, **sections: Any) -> Resolution:
    sections.setdefault("data", {"dataset": "fleet", "env_keys": ["booking", "github"]})
    with database.transaction() as session:
        return resolve(session, make_spec(**sections), project_id=project, now=NOW)


def test_a_name_becomes_the_newest_version_with_id_and_digest(database: Database) -> None:
    found = resolved(database)
    reference = found.spec.data.dataset
    assert reference is not None
    assert reference.model_dump() == {
        "name": "fleet",
        "version": 2,
        "id": "dsv_2",
        "digest": "2" * 64,
    }
    assert found.warnings == ()
    assert found.lint == ()
    assert found.dataset is not None
    assert list(found.dataset["envs"]) == ["booking", "github"]
    data = found.spec.data.model_dump(mode="json")
    again = resolved(database, data=data)
    assert again.spec == found.spec


def test_all_environments_are_taken_where_none_is_named(database: Database) -> None:
    bar(database, "ticketmaster")
    bar(database, "github", days=2)
    bar(database, "booking", days=-1)
    for key in ("hubspot", "zillow"):
        bar(database, key)
    found = resolved(database, data={"dataset": "fleet@1"})
    assert found.spec.data.env_keys == ("booking", "outlook", "reddit")
    assert [sentence.partition(":")[0] for sentence in found.warnings] == [
        "github is left out",
        "hubspot is left out",
        "ticketmaster is left out",
        "zillow is left out",
        "reddit has no eval task",
    ]
    assert "in quarantine until 2026-03-03 00:00 UTC (it answers 502)" in found.warnings[0]


def test_a_newer_exclusion_of_a_task_is_told(database: Database) -> None:
    bar(database, "task-7", scope="task")
    (warning,) = resolved(database).warnings
    assert "1 exclusion(s) of fleet are newer than version 2" in warning


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"data": {"dataset": "fleat"}}, "There is no dataset 'fleat'; did you mean 'fleet'"),
        ({"data": {"dataset": "fleet@3"}}, "has no version 3; it has versions 1 to 2"),
        ({"data": {"dataset": {"name": "fleet", "version": 1, "id": "dsv_2"}}}, "omit id and"),
        ({"data": {"dataset": "fleet", "env_keys": ["outlook"]}}, "outlook, which fleet does not"),
        ({"data": {"dataset": "fleet"}}, "26 tasks of ticketmaster in fleet are computer_use"),
        ({"data": {"dataset": "fleet", "env_keys": ["reddit"]}}, "no eval task in reddit"),
        ({"data": {"dataset": "fleet@1", "env_keys": ["outlook"]}}, "no training task in outl"),
        (
            {
                "schedule": {"total_steps": 1, "train_batch_size": 41, "mini_batch_size": 1},
            },
            r"schedule.train_batch_size \(41\) is larger than the number of training tasks \(40\)",
        ),
        (
            {
                "data": {"dataset": "fleet", "env_keys": ["booking"]},
                "environment": {"overrides": {"github": {}}},
            },
            "add it there or remove",
        ),
    ],
)
def test_what_a_run_cannot_use_is_refused_in_a_sentence(
    database: Database, sections: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((DatasetUnusable, ValueError), match=sentence):
        resolved(database, **sections)


def test_a_quarantine_never_empties_a_run_silently(database: Database) -> None:
    bar(database, "github", days=1)
    with pytest.raises(DatasetUnusable, match="names github, which is in quarantine until"):
        resolved(database)
    for key in ("booking", "reddit", "ticketmaster", "hubspot", "zillow"):
        bar(database, key)
    with pytest.raises(DatasetUnusable, match="every environment of fleet is excluded"):
        resolved(database, data={"dataset": "fleet"})


def test_a_probe_may_look_whether_an_environment_works_again(database: Database) -> None:
    bar(database, "reddit", days=1)
    found = resolved(database, kind="probe", data={"dataset": "fleet", "env_keys": ["reddit"]})
    assert found.spec.data.env_keys == ("reddit",)
    assert found.warnings[0].startswith("reddit is used although it is in quarantine until")


def test_an_evaluation_needs_no_training_tasks(database: Database) -> None:
    found = resolved(database, kind="eval", data={"dataset": "fleet@1", "env_keys": ["outlook"]})
    assert found.spec.data.env_keys == ("outlook",)


def test_a_dataset_of_another_project_is_not_there(database: Database) -> None:
    with pytest.raises(DatasetUnusable, match="There is no dataset 'fleet'"):
        resolved(database, OTHER_PROJECT)


ZILLOW = {"dataset": "fleet", "env_keys": ["booking", "zillow"]}


@pytest.mark.parametrize("kind", ["train", "eval"])
def test_what_lint_calls_an_error_stops_what_is_measured_unless_it_is_allowed(
    database: Database, kind: str
) -> None:
    with pytest.raises(DatasetUnusable) as refusal:
        resolved(database, kind=kind, data=ZILLOW)
    assert str(refusal.value) == (
        "lint finds in fleet@2: leak in zillow (2 of 6): exclude one of each pair, or set"
        " filters.copies to drop. Fix that, or allow it with data.allow_lint: [leak]"
    )
    allowed = resolved(database, kind=kind, data={**ZILLOW, "allow_lint": ["leak"]})
    (told,) = allowed.lint
    assert told.startswith("lint finds leak in zillow (2 of 6): ")
    assert allowed.spec.data.allow_lint == ("leak",)


@pytest.mark.parametrize("kind", ["probe", "validate", "preview"])
def test_kinds_that_look_for_faults_are_told_of_them(database: Database, kind: str) -> None:
    (told,) = resolved(database, kind=kind, data=ZILLOW).lint
    assert told.startswith("lint finds leak in zillow")


def test_eval_tasks_count_by_what_they_ask(database: Database) -> None:
    """Six eval tasks that all ask one thing are one: no result on it means anything."""
    data = {"dataset": "fleet", "env_keys": ["hubspot"]}
    with pytest.raises(DatasetUnusable, match=r"eval_too_small \(1 different eval task in all"):
        resolved(database, data=data)
    allowed = resolved(database, data={**data, "allow_lint": ["eval_too_small"]})
    assert len(allowed.lint) == 1
    beside = resolved(database, data={"dataset": "fleet", "env_keys": ["booking", "hubspot"]})
    assert beside.lint == ()
    assert beside.warnings == (
        "fewer than 6 different eval tasks in hubspot (1): too few to prove a change there.",
    )


def test_a_run_that_goes_on_keeps_its_environments_whatever_became_of_them(
    database: Database,
) -> None:
    """They stand in its stored spec as if its user had named them."""
    bar(database, "zillow", days=1)
    spec = make_spec(data=ZILLOW)
    with database.transaction() as session:
        found = resolve(session, spec, project_id=PROJECT, now=NOW, is_resumed=True)
    assert found.spec.data.env_keys == ("booking", "zillow")
    assert found.warnings[0].startswith("zillow is used although it is in quarantine until")
    assert found.lint[0].startswith("lint finds leak in zillow")


SMALL = {"total_steps": 10, "train_batch_size": 8, "mini_batch_size": 8}


def test_the_documented_small_run_is_admitted_with_a_smaller_batch(database: Database) -> None:
    data = {"dataset": "fleet", "env_keys": ["github"], "modality": "tool_use", "max_tasks": 4}
    found = resolved(database, data=data, schedule=SMALL)
    assert (found.spec.schedule.train_batch_size, found.spec.schedule.total_steps) == (4, 10)
    assert found.dataset is not None
    assert found.dataset["envs"]["github"]["train"] == 4
    assert found.dataset["envs"]["github"]["eval"] == 6
    assert "train_batch_size is 4 instead of 8" in found.warnings[-1]


def test_a_limited_run_needs_no_eval_tasks_and_says_that_nothing_is_measured(
    database: Database,
) -> None:
    for key, message in (("reddit", "no eval task in reddit"), ("hubspot", "eval_too_small")):
        data = {"dataset": "fleet", "env_keys": [key]}
        with pytest.raises(DatasetUnusable, match=message):
            resolved(database, data=data, schedule=SMALL)
    bare = resolved(
        database, data={"dataset": "fleet", "env_keys": ["reddit"], "max_tasks": 4}, schedule=SMALL
    )
    assert "reddit has no eval task: progress there is not measured." in bare.warnings
    few = resolved(
        database, data={"dataset": "fleet", "env_keys": ["hubspot"], "max_tasks": 4}, schedule=SMALL
    )
    assert any("eval_too_small" in sentence for sentence in few.lint)
    data = {"dataset": "fleet", "env_keys": ["reddit"], "max_tasks": 4}
    with pytest.raises(DatasetUnusable, match="no eval task in reddit"):
        resolved(database, data=data, kind="eval")


def test_a_limit_below_the_environments_of_the_dataset_is_refused(database: Database) -> None:
    data = {"dataset": "fleet", "env_keys": ["booking", "github"], "max_tasks": 1}
    with pytest.raises(DatasetUnusable, match=r"max_tasks \(1\) is smaller than the number of"):
        resolved(database, data=data)


def test_epochs_count_the_tasks_of_the_dataset(database: Database) -> None:
    data = {"dataset": "fleet", "env_keys": ["booking", "github"]}
    found = resolved(database, data=data, schedule=SMALL | {"epochs": 2})
    assert (found.spec.schedule.total_steps, found.spec.schedule.epochs) == (10, None)
    assert "2 epochs of 40 training tasks, 8 a step" in found.warnings[-1]


def test_a_modality_leaves_out_environments_without_such_tasks(database: Database) -> None:
    data = {"dataset": "fleet", "modality": "tool_use", "allow_lint": ["leak"]}
    found = resolved(database, data=data, schedule=SMALL)
    assert "ticketmaster" not in found.spec.data.env_keys
    assert "ticketmaster is left out: it has no tool_use task." in found.warnings
    named = data | {"env_keys": ["ticketmaster"]}
    with pytest.raises(DatasetUnusable, match="ticketmaster, which has no tool_use task"):
        resolved(database, data=named)


def test_a_modality_counts_its_own_tasks_of_a_mixed_environment(database: Database) -> None:
    data = {"dataset": "fleet", "env_keys": ["booking"], "modality": "tool_use"}
    mixed = env() | {"modalities": {"tool_use": 12, "computer_use": 14}}
    counts = {"tool_use": {"train": 9, "eval": 3, "unique_eval": 3}}
    with database.transaction() as session:
        version = session.get_one(DatasetVersion, "dsv_2")
        version.facts = {"envs": {"booking": mixed}}
    with pytest.raises(DatasetUnusable, match=r"create a version with filters\.modality tool_use"):
        resolved(database, data=data)
    with database.transaction() as session:
        version = session.get_one(DatasetVersion, "dsv_2")
        version.facts = {"envs": {"booking": mixed | {"by_modality": counts}}}
    found = resolved(database, data=data | {"allow_lint": ["eval_too_small"]})
    assert found.dataset is not None
    facts = found.dataset["envs"]["booking"]
    assert (facts["train"], facts["eval"], facts["modalities"]) == (9, 3, {"tool_use": 12})
