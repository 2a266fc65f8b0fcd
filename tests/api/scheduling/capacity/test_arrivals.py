"""Submissions beside each other, and the last places under a quota."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime

import pytest
from sqlalchemy import select
from sqlalchemy import text as sql
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.orm import Session

from api.admission.submit import Submission, submit_to_queue
from api.runs.status import RunStatus
from api.scheduling.capacity.arrivals import QuotaNear
from api.tables import ProjectSecret, Run
from api.tables.access.errors import QuotaExceeded
from api.tables.access.quotas import DEFAULTS, lock_submissions, set_quotas
from tests.api.fixtures.migrated import PROJECT
from tests.api.fixtures.stage import Stage
from tests.fixtures import factories as make

LEFT = 5
"""Places above the number of connections: so many submissions are sure to go beside each other."""


@dataclass(slots=True)
class Arrivals:
    """Submissions to the stage's project, each its own transaction."""

    stage: Stage

    def limit(self, queued_runs: int) -> None:
        with self.stage.database.transaction() as session:
            limits = {**dict.fromkeys(DEFAULTS), "queued_runs": queued_runs}
            set_quotas(session, PROJECT, limits, actor="operator")

    @property
    def most_transactions(self) -> int:
        with self.stage.database.transaction() as session:
            return int(session.execute(sql("SHOW max_connections")).scalar_one())

    @property
    def num_waiting(self) -> int:
        with self.stage.database.transaction() as session:
            query = select(Run.id).where(Run.status == RunStatus.QUEUED.value)
            return len(session.scalars(query).all())

    def add(self, session: Session, *, is_alone: bool, **sections: object) -> int:
        """Return how many runs wait before it."""
        submission = Submission(
            spec=make.make_spec(**sections),
            project_id=PROJECT,
            actor="key:me",
            now=self.stage.now,
            is_alone=is_alone,
        )
        return submit_to_queue(session, submission).arrival.num_ahead

    def admit(self, _: int) -> str:
        """Submit as a request does: beside others, or alone where that is refused."""
        for way, is_alone in (("beside", False), ("alone", True)):
            try:
                with self.stage.database.transaction() as session:
                    self.add(session, is_alone=is_alone)
            except QuotaNear:
                continue
            except QuotaExceeded:
                break
            return way
        return "refused"


@pytest.fixture
def arrivals(stage: Stage) -> Arrivals:
    return Arrivals(stage)


def test_submissions_beside_each_other_do_not_wait(arrivals: Arrivals) -> None:
    database = arrivals.stage.database
    with database.transaction() as first, database.transaction() as second:
        assert arrivals.add(first, is_alone=False) == 0
        assert arrivals.add(second, is_alone=False) == 0, "the first one is not committed"
    assert arrivals.num_waiting == 2


@pytest.mark.parametrize(("first", "second"), [(False, True), (True, False), (True, True)])
def test_a_submission_that_is_alone_waits_for_others_and_they_for_it(
    arrivals: Arrivals, first: bool, second: bool
) -> None:
    seen: list[int] = []

    def submit() -> None:
        with arrivals.stage.database.transaction() as session:
            seen.append(arrivals.add(session, is_alone=second))

    with arrivals.stage.database.transaction() as session:
        arrivals.add(session, is_alone=first)
        session.flush()
        thread = threading.Thread(target=submit)
        thread.start()
        thread.join(0.2)
        assert thread.is_alive()
    thread.join(30)
    assert seen == [1], "it counts the run that was committed while it waited"


def test_as_many_places_as_connections_are_left_to_submissions_that_are_alone(
    arrivals: Arrivals,
) -> None:
    most = arrivals.most_transactions
    arrivals.limit(most + 1)
    assert [arrivals.admit(number) for number in range(4)] == ["beside", "beside", "alone", "alone"]


def test_a_crowd_fills_a_quota_exactly(arrivals: Arrivals) -> None:
    arrivals.limit(arrivals.most_transactions + LEFT)
    num_requests = arrivals.most_transactions + 3 * LEFT
    with ThreadPoolExecutor(8) as pool:
        ways = list(pool.map(arrivals.admit, range(num_requests)))
    assert arrivals.num_waiting == arrivals.most_transactions + LEFT
    assert ways.count("refused") == 2 * LEFT
    assert ways.count("beside") >= LEFT


def test_submissions_that_name_the_same_secrets_lock_them_in_one_order(
    arrivals: Arrivals,
) -> None:
    database = arrivals.stage.database
    with database.transaction() as session:
        for name in "acb":
            session.add(secret(name, arrivals.stage.now))
            session.flush()
        session.execute(sql("ANALYZE project_secrets"))  # From now on the planner scans the table.
    touch = sql("UPDATE project_secrets SET used_at = now() WHERE name = :name")
    failures: list[Exception] = []

    def submit(names: str) -> None:
        secrets = {f"RUN_SECRET_{name.upper()}": name for name in names}
        try:
            with database.transaction() as session:
                arrivals.add(session, is_alone=False, secrets=secrets)
        except DBAPIError as error:
            failures.append(error)

    first, second = (threading.Thread(target=submit, args=(names,)) for names in ("acb", "ab"))
    with database.transaction() as holder:
        # A trainer's start moves a secret's row to the end of the table.
        holder.execute(touch, {"name": "c"})
        with database.transaction() as session:
            session.execute(touch, {"name": "a"})
            first.start()
            first.join(0.3)
        second.start()
        second.join(0.3)
    first.join(30)
    second.join(30)
    assert failures == []


def secret(name: str, now: datetime) -> ProjectSecret:
    return ProjectSecret(
        project_id=PROJECT,
        name=name,
        key_id="k",
        ciphertext=b"x",
        version=1,
        hosts=[],
        created_by="key:me",
        updated_by="key:me",
        updated_at=now,
    )


@pytest.mark.parametrize("is_alone", [True, False])
def test_a_project_is_not_deleted_between_a_count_and_its_run(
    arrivals: Arrivals, is_alone: bool
) -> None:
    database = arrivals.stage.database
    with database.transaction() as session:
        lock_submissions(session, PROJECT, is_alone=is_alone)
        with pytest.raises(OperationalError), database.transaction() as other:
            other.execute(
                sql("SELECT FROM projects WHERE id = :id FOR UPDATE NOWAIT"), {"id": PROJECT}
            )
