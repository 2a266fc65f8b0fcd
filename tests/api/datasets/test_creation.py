"""Versions are made of what is so when they are stored, whatever happens while they are built."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from api.datasets import blobs, creation, exclusions, store
from api.datasets.creation import CreationContext, Order
from api.datasets.errors import DatasetRejected, DatasetsBusy
from api.datasets.request import VersionRequest
from api.datasets.work import process
from api.datasets.work.process import JobLimits
from api.tables import DatasetExclusion, DatasetVersion
from api.tables.database import Database
from hillclimb.blobs.disk import DiskStore
from hillclimb.datasets.filter.exclusions import Exclusion
from hillclimb.datasets.format.files import LINEAGE, version_key
from tests.api.datasets.samples import lines, tasks
from tests.api.fixtures.migrated import PROJECT

ROWS = tasks(booking=60, github=60)
NO_DATE = Exclusion(scope="task", key="booking-001", reason="no date")


@pytest.fixture
def shop(database: Database, tmp_path: Path) -> CreationContext:
    return CreationContext(
        database=database,
        store=DiskStore(tmp_path / "blobs"),
        limits=JobLimits(memory_mb=2048, deadline_s=60, max_unpacked_mb=100),
        prefixes=(),
        max_bytes=10**9,
    )


@pytest.fixture
def make(shop: CreationContext, tmp_path: Path) -> Callable[..., dict[str, Any]]:
    def make(rows: list[dict[str, Any]], name: str = "fleet", **options: Any) -> dict[str, Any]:
        upload = tmp_path / "tasks.jsonl"
        upload.write_bytes(lines(rows))
        order = Order(
            project_id=PROJECT,
            name=name,
            actor="key:me",
            request=VersionRequest.model_validate(options),
            upload=upload,
        )
        return creation.create_version(shop, order)[0].response

    return make


def exclude(database: Database, *drafts: Exclusion) -> list[datetime]:
    """Exclude as a request of its own does; return since when."""
    with database.transaction() as session:
        dataset = store.find_dataset(session, PROJECT, "fleet")
        found = exclusions.add(session, dataset, drafts, actor="key:other")
        return [each.created_at for each in found]


def while_built(
    monkeypatch: pytest.MonkeyPatch, happens: Callable[[int], None]
) -> list[tuple[tuple[str, ...], ...]]:
    """Let something happen after each building and before it is stored; return what was read."""
    real, lineages = process.run_job, []

    def run_job(kind: str, folder: Path, job: Any, limits: JobLimits) -> dict[str, Any]:
        result = real(kind, folder, job, limits)
        lineages.append(tuple(job["lineage"]))
        happens(len(lineages))
        return result

    monkeypatch.setattr(process, "run_job", run_job)
    return lineages


def test_an_exclusion_made_while_a_version_is_built_counts_for_it(
    make: Callable[..., dict[str, Any]], database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(ROWS)

    def happens(number: int) -> None:
        if number == 1:
            exclude(database, NO_DATE)

    built = while_built(monkeypatch, happens)
    second = make([*ROWS, *tasks(reddit=20)])
    assert (second["number"], second["excluded"], len(built)) == (2, {"user: no date": 1}, 2)
    again = make(ROWS)
    assert again["excluded"] == {"user: no date": 1}, "not the first version, which has the task"


def test_a_version_is_given_up_when_its_exclusions_keep_changing(
    make: Callable[..., dict[str, Any]],
    shop: CreationContext,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = make(ROWS)
    while_built(
        monkeypatch,
        lambda n: exclude(database, NO_DATE.model_copy(update={"reason": f"no {n}"})) and None,
    )
    with pytest.raises(DatasetsBusy, match="versions and exclusions of fleet keep being stored"):
        make([*ROWS, *tasks(reddit=20)])
    assert {key.split("/")[1] for key in shop.store.list("datasets")} == {first["id"]}


def test_an_exclusion_is_as_old_as_its_last_time_in_force(
    make: Callable[..., dict[str, Any]], database: Database
) -> None:
    """A submission compares it with its version: what is newer, the version still has."""
    version = make(ROWS, exclusions=[{"scope": "task", "key": "github-002", "reason": "odd"}])
    with database.transaction() as session:
        stored = session.get_one(DatasetVersion, version["id"])
        (own,) = session.query(DatasetExclusion).all()
        assert own.created_at <= stored.created_at, "it came with the version"
        made_at = stored.created_at
    (since,) = exclude(database, NO_DATE)
    assert since > made_at
    (again,) = exclude(database, NO_DATE.model_copy(update={"reason": "no year"}))
    assert again == since, "in force all the time"
    with database.transaction() as session:
        over = session.query(DatasetExclusion).filter_by(key=NO_DATE.key).one()
        over.expires_at = datetime.now(UTC) - timedelta(minutes=1)
    (anew,) = exclude(database, NO_DATE)
    assert anew > since


def test_a_quarantine_of_an_environment_that_no_version_has_is_refused(
    make: Callable[..., dict[str, Any]], database: Database
) -> None:
    make(ROWS)
    until = datetime.now(UTC) + timedelta(days=1)
    typo = Exclusion(scope="env", key="gihub", reason="502", expires_at=until)
    with pytest.raises(DatasetRejected, match=r"environment 'gihub' to .*; did you mean 'github'"):
        exclude(database, typo)
    exclude(database, typo.model_copy(update={"key": "github"}))
    with pytest.raises(DatasetRejected, match="it has booking, github, reddit"):
        make(tasks(reddit=20), exclusions=[typo.model_copy(update={"key": "zzz"})])
    new = make(tasks(reddit=20), exclusions=[typo.model_copy(update={"key": "reddit"})])
    assert new["number"] == 2, "this version has it"


def test_one_file_holds_all_that_came_before(
    make: Callable[..., dict[str, Any]], shop: CreationContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version's lineage has its ancestors', so only the newest and the parent are read."""
    built = while_built(monkeypatch, lambda _: None)
    old = make(tasks(reddit=60), "other")
    make(tasks(hubspot=60), "other")
    other = make(tasks(zillow=60), "other")
    first = make(ROWS)
    second = make(tasks(github=90), parent="other@3")
    assert built[-1] == ((first["id"],), (other["id"],))
    third = make([*ROWS, *tasks(reddit=60)], split={"policy": "rank", "salt": 9})
    assert built[-1] == ((second["id"],),)

    def evaluated(version: dict[str, Any], name: str) -> set[str]:
        with blobs.local_copy(shop.store, version["id"], name) as path, gzip.open(path) as rows:
            return {row["key"] for row in map(json.loads, rows) if row["split"] == "eval"}

    before = evaluated(old, "split.jsonl.gz")
    assert len(before) == 6
    assert before <= evaluated(third, LINEAGE)
    assert before <= evaluated(third, "split.jsonl.gz"), "two names back, and still not trained on"


def test_what_one_name_trained_on_is_no_eval_task_because_another_evaluated_on_it(
    make: Callable[..., dict[str, Any]], shop: CreationContext
) -> None:
    rows = tasks(reddit=60)
    first = make(rows, split={"policy": "rank", "eval_ratio": 0.0})
    make(rows, "other")
    assert (first["num_train"], first["num_eval"]) == (60, 0)
    kept_out = {"split: meant for eval, but an earlier version trained on it": 6}
    second = make([*rows, *tasks(zillow=60)], parent="other@1")
    assert second["excluded"] == kept_out
    third = make([*rows, *tasks(zillow=70)])
    assert third["excluded"] == kept_out, "the stored lineage says it too"
    lifted = make(rows, split={"policy": "rank", "trained_may_become_eval": True})
    assert (lifted["excluded"], lifted["num_eval"]) == ({}, 6)


def test_versions_without_a_stored_lineage_are_read_one_by_one(
    make: Callable[..., dict[str, Any]], shop: CreationContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = [make(tasks(reddit=60), "other"), make(tasks(zillow=60), "other")]
    made += [make(ROWS, parent="other@2"), make(tasks(github=90))]
    for version in made:
        shop.store.delete_prefix(version_key(version["id"], LINEAGE))
    built = while_built(monkeypatch, lambda _: None)
    make([*ROWS, *tasks(reddit=60)], split={"policy": "rank", "salt": 9})
    assert built == [(tuple(sorted(each["id"] for each in made)),)]
