"""Admits specs: submits, plans and resumes runs, each in one call and one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from sqlalchemy.orm import Session

from api.admission import submit as submission
from api.admission.defaults import Terms, terms_of, with_defaults
from api.admission.lineage.fork import ForkRequest, forked_spec
from api.admission.lineage.resume import resume
from api.admission.refusals.acceptance.admit import accepted_paths
from api.admission.refusals.rental import RentalSettings, refuse_unrentable, rental_warnings, rents
from api.admission.refusals.tenancy import TenancyRules
from api.clusters import quotes
from api.results.comparison.config_diff import config_diff
from api.runs import store
from api.runs.journal import utc_now
from api.runs.stored_spec import spec_of
from api.scheduling.capacity.arrivals import Arrival, QuotaNear
from api.tables import Run
from api.tables.access import idempotency
from api.tables.access.grants.charging import charge_run
from api.tables.access.idempotency import RequestKey, StoredResponse
from api.tables.access.identity import Principal
from api.tables.database import Database
from hillclimb.process import tracing
from hillclimb.spec.preflight.accepted_paths import AcceptedPath
from hillclimb.spec.rules.project_defaults import NO_DEFAULTS, DefaultValues
from hillclimb.spec.run import RunSpec

CREATED, OK = 201, 200
"""HTTP statuses of a new run and of a resumed one, stored with the idempotency key."""

Describe = Callable[[Session, Run, Arrival | None], dict[str, Any]]
"""Returns a run as the JSON of the response, with what it found if it has just been submitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """The response for an admitted run."""

    response: StoredResponse
    is_replayed: bool = False
    """True for a repeated request: the response is the first one's, and nothing was stored."""

    @property
    def run_id(self) -> str:
        """The run's id."""
        return str(self.response.response["id"])

    @property
    def waits(self) -> bool:
        """True if something else has to happen before the run can start."""
        queue = self.response.response["queue"]
        return queue is not None and queue["reason"] is not None


class _Done(NamedTuple):
    """The outcome of a request: a run, the status of the answer, and what a submitted run found."""

    run: Run
    status: int
    arrival: Arrival | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Admits runs to the queue by this service's settings."""

    database: Database
    rental: RentalSettings
    describe: Describe
    tenancy: TenancyRules
    defaults: DefaultValues = NO_DEFAULTS
    """The operator's, which go after those of the project."""

    def from_channel(self, channel: str) -> Admission:
        """Return the admission of a request that Slack says somebody sent from this channel."""
        return replace(self, tenancy=self.tenancy.from_channel(channel))

    def accepted(self) -> Iterator[AcceptedPath]:
        """Yield the paths that need no `experimental` here; the database is asked at the first."""
        with self.database.transaction() as session:
            paths = accepted_paths(session)
        yield from paths

    def submit(self, spec: RunSpec, caller: Principal, request: RequestKey | None) -> Admitted:
        """Store a queued run; a repeated `request` returns the first response.

        The defaults of project and operator are applied first. Raises what `submit.submit` does,
        DefaultsMisfit, AddressRefused, NoEligibleHardware where this service cannot rent the run's
        nodes, GrantExhausted, and IdempotencyKeyReused.
        """
        terms = self._terms(caller)
        spec, _ = with_defaults(spec, terms, self.defaults)
        self.tenancy.refuse_foreign(spec, caller.project_id)
        refuse_unrentable(spec, self.rental)
        self._request_prices(spec)

        def create(session: Session, now: datetime, *, is_alone: bool = False) -> _Done:
            submitted = submission.submit_to_queue(
                session,
                submission.Submission(
                    spec=spec,
                    project_id=caller.project_id,
                    actor=caller.actor,
                    now=now,
                    accepted=terms.accepted,
                    is_alone=is_alone,
                ),
            )
            charge_run(session, caller)
            return _Done(submitted.run, CREATED, submitted.arrival)

        with tracing.span("admission"):
            try:
                return self._once(request, create)
            except QuotaNear:
                return self._once(request, partial(create, is_alone=True))

    def submit_within(
        self,
        session: Session,
        spec: RunSpec,
        caller: Principal,
        *,
        now: datetime,
        parent: Run | None = None,
    ) -> Run:
        """Store a queued run in the caller's transaction; raises as `submit`, without its key.

        `parent` is the run of the same project whose spec it has, with changes.
        """
        self.tenancy.refuse_foreign(spec, caller.project_id, channel=_channel_of(parent))
        refuse_unrentable(spec, self.rental)
        skypilot = spec.backend.skypilot
        if skypilot is not None and rents(spec) and self.rental.clouds:
            quotes.request(session, skypilot, now=now)
        run = submission.submit(
            session, spec, project_id=caller.project_id, actor=caller.actor, now=now
        )
        charge_run(session, caller)
        return run

    def plan(self, spec: RunSpec, caller: Principal) -> submission.Plan:
        """Return what submitting the spec would do.

        Raises what `submit.plan` does, and AddressRefused.
        """
        spec, from_defaults = with_defaults(spec, self._terms(caller), self.defaults)
        self.tenancy.refuse_foreign(spec, caller.project_id)
        self._request_prices(spec)
        with self.database.transaction() as session:
            planned = submission.plan(
                session,
                spec,
                project_id=caller.project_id,
                now=utc_now(),
                rental=rental_warnings(spec, self.rental),
            )
        return replace(planned, from_defaults=from_defaults)

    def resume(self, run_id: str, caller: Principal, request: RequestKey | None) -> Admitted:
        """Resume a run from its newest checkpoint; a repeated `request` returns the first response.

        Raises what `resume` does, RunNotFound, AddressRefused, NoEligibleHardware where this
        service cannot rent the run's nodes, and IdempotencyKeyReused.
        """

        def resume_run(session: Session, now: datetime) -> _Done:
            run = store.lock_run(session, run_id, project_id=caller.project_id)
            store.refuse_imported(run, "be resumed")
            spec = spec_of(run)
            self.tenancy.refuse_foreign(spec, caller.project_id, channel=_channel_of(run))
            refuse_unrentable(spec, self.rental)
            resumed = resume(session, run, actor=caller.actor, now=now)
            if resumed.id == run_id:
                return _Done(resumed, OK)
            charge_run(session, caller)
            return _Done(resumed, CREATED)

        return self._once(request, resume_run)

    def fork(
        self, run_id: str, body: ForkRequest, caller: Principal, request: RequestKey | None
    ) -> Admitted:
        """Submit a run's spec with changes; the response has its difference to the run's.

        Raises what `fork.forked_spec` and `submit` do, RunNotFound, and IdempotencyKeyReused.
        """

        def fork_run(session: Session, now: datetime) -> _Done:
            parent = store.get_run(session, caller.project_id, run_id)
            spec = forked_spec(session, parent, body)
            run = self.submit_within(session, spec, caller, now=now, parent=parent)
            return _Done(run, CREATED)

        def describe(session: Session, run: Run, arrival: Arrival | None) -> dict[str, Any]:
            parent = store.get_run(session, caller.project_id, run_id)
            difference = config_diff(parent.spec, run.spec)
            return self.describe(session, run, arrival) | {"config_diff": difference}

        return self._once(request, fork_run, describe)

    def _terms(self, caller: Principal) -> Terms:
        with self.database.lookup() as session:
            return terms_of(session, caller.project_id)

    def _once(
        self,
        request: RequestKey | None,
        work: Callable[[Session, datetime], _Done],
        describe: Describe | None = None,
    ) -> Admitted:
        """Do `work` and store its response under the request's key, in one transaction."""
        with self.database.transaction() as session:
            stored = idempotency.begin(session, request) if request else None
            if stored is not None:
                return Admitted(response=stored, is_replayed=True)
            done = work(session, utc_now())
            session.flush()
            facts = (describe or self.describe)(session, done.run, done.arrival)
            response = StoredResponse(status=done.status, response=facts)
            if request:
                idempotency.finish(session, request, response)
        return Admitted(response=response)

    def _request_prices(self, spec: RunSpec) -> None:
        """Request the prices of the spec's machines from the worker.

        In its own transaction: the request is kept even when the spec is rejected.
        """
        skypilot = spec.backend.skypilot
        if skypilot is not None and rents(spec) and self.rental.clouds:
            with self.database.transaction() as session:
                quotes.request(session, skypilot, now=utc_now())


def _channel_of(run: Run | None) -> str | None:
    """Return the Slack channel of a stored spec; null without one."""
    slack = (run.spec.get("notify") or {}).get("slack") if run is not None else None
    return None if slack is None else str(slack["channel"])
