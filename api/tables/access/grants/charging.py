"""Charges a key's grant in the transaction of what it pays for.

The grant's row is locked first, so concurrent requests of one key wait for each other, and a
transaction that is rolled back is not charged.
"""

from __future__ import annotations

from sqlalchemy import bindparam, select
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
    grant = _lock_grant(session, caller)
    if grant is None:
        return
    if grant.num_runs_used >= grant.num_runs:
        raise GrantExhausted(
            f"The grant of the key {caller.key_name!r} covers {grant.num_runs} runs, and"
            f" {grant.num_runs_used} are used: this request creates one more. Nothing was created."
            " An admin can raise it (hillclimb agent-key set)."
        )
    grant.num_runs_used += 1


def charge_extension(session: Session, caller: Principal, *, usd: float, hours: float) -> None:
    """Count an extension of a run's budget against the grant of the caller's key, if it has one.

    Raises:
        GrantExhausted: the extension is larger than what is left.
    """
    grant = _lock_grant(session, caller)
    if grant is None:
        return
    used_usd, used_hours = grant.extra_usd_used + usd, grant.extra_hours_used + hours
    if used_usd > grant.extra_usd or used_hours > grant.extra_hours:
        raise GrantExhausted(
            f"The grant of the key {caller.key_name!r} has"
            f" ${grant.extra_usd - grant.extra_usd_used:g} and"
            f" {grant.extra_hours - grant.extra_hours_used:g} h left for budgets of runs, less than"
            f" ${usd:g} and {hours:g} h. Nothing was extended. An admin can raise it (hillclimb"
            " agent-key set)."
        )
    grant.extra_usd_used, grant.extra_hours_used = used_usd, used_hours


def _lock_grant(session: Session, caller: Principal) -> RunGrant | None:
    if caller.key_id is None or not caller.may_have_grant:
        return None
    if session.connection().execute(_LOCKED, {"key_id": caller.key_id}).first() is None:
        return None
    return session.get_one(RunGrant, caller.key_id, populate_existing=True)


_LOCKED = select(RunGrant.key_id).where(RunGrant.key_id == bindparam("key_id")).with_for_update()
"""Made once, and of a column: most keys have no grant."""
