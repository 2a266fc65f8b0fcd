"""Charges a key's grant in the transaction of what it pays for.

One UPDATE checks and counts, so concurrent requests of one key wait for each other, and a
transaction that is rolled back is not charged.
"""

from __future__ import annotations

from sqlalchemy import update
from sqlalchemy.orm import Session

from api.tables import RunGrant
from api.tables.access.identity import IdentityError, Principal


class GrantExhausted(IdentityError):
    """The grant of the caller's key does not cover the request."""


def charge_run(session: Session, caller: Principal) -> None:
    """Count one new run against the grant of the caller's key, if it has one.

    Raises:
        GrantExhausted: the key has created as many runs as it may.
    """
    charge = (
        update(RunGrant)
        .where(RunGrant.key_id == caller.key_id, RunGrant.num_runs_used < RunGrant.num_runs)
        .values(num_runs_used=RunGrant.num_runs_used + 1)
        .returning(RunGrant.key_id)
        .execution_options(synchronize_session=False)
    )
    if session.scalar(charge) is None and (grant := _grant(session, caller)) is not None:
        raise GrantExhausted(
            f"The grant of the key {caller.key_name!r} covers {grant.num_runs} runs, and"
            f" {grant.num_runs_used} are used: this request creates one more. Nothing was created."
            " An admin can raise it (hillclimb agent-key set)."
        )


def charge_extension(session: Session, caller: Principal, *, usd: float, hours: float) -> None:
    """Count an extension of a run's budget against the grant of the caller's key, if it has one.

    Raises:
        GrantExhausted: the extension is larger than what is left.
    """
    charge = (
        update(RunGrant)
        .where(
            RunGrant.key_id == caller.key_id,
            RunGrant.extra_usd_used + usd <= RunGrant.extra_usd,
            RunGrant.extra_hours_used + hours <= RunGrant.extra_hours,
        )
        .values(
            extra_usd_used=RunGrant.extra_usd_used + usd,
            extra_hours_used=RunGrant.extra_hours_used + hours,
        )
        .returning(RunGrant.key_id)
        .execution_options(synchronize_session=False)
    )
    if session.scalar(charge) is None and (grant := _grant(session, caller)) is not None:
        raise GrantExhausted(
            f"The grant of the key {caller.key_name!r} has"
            f" ${grant.extra_usd - grant.extra_usd_used:g} and"
            f" {grant.extra_hours - grant.extra_hours_used:g} h left for budgets of runs, less than"
            f" ${usd:g} and {hours:g} h. Nothing was extended. An admin can raise it (hillclimb"
            " agent-key set)."
        )


def _grant(session: Session, caller: Principal) -> RunGrant | None:
    return session.get(RunGrant, caller.key_id, populate_existing=True)
