"""Clusters that live where nobody could end them: a service that rents none does not start."""

from __future__ import annotations

from sqlalchemy.orm import Session

from api.clusters import store

SHOWN = 5
"""Names in the message."""


class ClustersUnattended(Exception):
    """The message is a sentence for the operator."""


def refuse_unattended(session: Session, *, clouds: str, abandon: bool) -> None:
    """Look for clusters that are not gone, where `clouds` names nobody who could end them.

    Raises:
        ClustersUnattended: there are some, and the operator has not said to leave them.
    """
    if clouds or abandon:
        return
    names = sorted(store.live_by_name(session))
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        raise ClustersUnattended(
            f"{len(names)} clusters are not gone ({', '.join(names[:SHOWN])}{more}), and"
            " HILLCLIMB_CLOUDS is empty: nobody would end them, or count what they cost. Start"
            " with `hillclimb up --with-sky` or set HILLCLIMB_CLOUDS; to leave them to others, set"
            " HILLCLIMB_ABANDON_CLUSTERS=1."
        )
