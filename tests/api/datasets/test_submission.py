"""From a dataset's name in a spec to the version and the environments that a run gets."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from api.database import Database
from api.datasets.errors import DatasetUnusable
from api.datasets.submission import Resolution, resolve
from api.tables import Dataset, DatasetExclusion, DatasetVersion
from tests.api.migrated import OTHER_PROJECT, PROJECT
from tests.factories import make_spec

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def env(train: int = 20, evals: int = 5, modality: str = "tool_use") -> dict[str, Any]:
    return {"train": train, "eval": evals, "modalities": {modality: train + evals}}


ENVS = {
    "booking": env(),
    "github": env(),
    "reddit": env(evals=0),
    "outlook": env(train=0),
    "ticketmaster": env(modality="computer_use"),
}
WITHOUT_OUTLOOK = {key: facts for key, facts in ENVS.items() if key != "outlook"}


@pytest.fixture(autouse=True)
def _stored(database: Database) -> None:
    with database.transaction() as session:
        names = {"id": "ds_1", "project_id": PROJECT, "name": "fleet"}
        session.add(Dataset(**names, num_versions=2, created_by="key:me"))
        session.flush()
        for number in (1, 2):
            finding = {"severity": "error", "env_key": "github", "message": "leaks"}
            minor = {"severity": "warning", "env_key": None, "message": "small"}
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
                    lint={"findings": [finding, minor]},
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
    assert found.advice == ("lint: leaks",)
    assert found.dataset is not None
    assert list(found.dataset["envs"]) == ["booking", "github"]
    data = found.spec.data.model_dump(mode="json")
    again = resolved(database, data=data)
    assert again.spec == found.spec


def test_all_environments_are_taken_where_none_is_named(database: Database) -> None:
    bar(database, "ticketmaster")
    bar(database, "github", days=2)
    bar(database, "booking", days=-1)
    found = resolved(database, data={"dataset": "fleet@1"})
    assert found.spec.data.env_keys == ("booking", "outlook", "reddit")
    assert [sentence.partition(":")[0] for sentence in found.warnings] == [
        "github is left out",
        "ticketmaster is left out",
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
        ({"data": {"dataset": "fleat"}}, "There is no dataset 'fleat'"),
        ({"data": {"dataset": "fleet@3"}}, "has no version 3; it has versions 1 to 2"),
        ({"data": {"dataset": {"name": "fleet", "version": 1, "id": "dsv_2"}}}, "leave id and"),
        ({"data": {"dataset": "fleet", "env_keys": ["outlook"]}}, "outlook, which fleet does not"),
        ({"data": {"dataset": "fleet"}}, "25 tasks of ticketmaster in fleet are computer_use"),
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
    for key in ("booking", "reddit", "ticketmaster"):
        bar(database, key)
    with pytest.raises(DatasetUnusable, match="every environment of fleet is excluded"):
        resolved(database, data={"dataset": "fleet"})


def test_a_probe_may_look_whether_an_environment_works_again(database: Database) -> None:
    bar(database, "reddit", days=1)
    found = resolved(database, kind="probe", data={"dataset": "fleet", "env_keys": ["reddit"]})
    assert found.spec.data.env_keys == ("reddit",)
    assert found.warnings[0].startswith("reddit is taken though it is in quarantine until")


def test_an_evaluation_needs_no_training_tasks(database: Database) -> None:
    found = resolved(database, kind="eval", data={"dataset": "fleet@1", "env_keys": ["outlook"]})
    assert found.spec.data.env_keys == ("outlook",)


def test_a_dataset_of_another_project_is_not_there(database: Database) -> None:
    with pytest.raises(DatasetUnusable, match="There is no dataset 'fleet'"):
        resolved(database, OTHER_PROJECT)
