"""Names of clusters: they carry the deployment's tag, by which a provider's list is filtered."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.tables import Deployment

DEPLOYMENT_ID = "this"
"""Id of the only row of `deployments`."""
TAG_CHARS = "0123456789abcdefghjkmnpqrstvwxyz"
TAG_LENGTH = 4
RUN_CHARS = 10
"""Characters of a run's id, from its random end: clouds limit the length of names."""


def deployment_tag(session: Session) -> str:
    """Return this service's tag, created once per database.

    Two services that share a cloud account never touch each other's clusters.
    """
    query = select(Deployment.tag).where(Deployment.id == DEPLOYMENT_ID)
    if (existing := session.scalar(query)) is not None:
        return existing
    tag = "".join(secrets.choice(TAG_CHARS) for _ in range(TAG_LENGTH))
    # Another process may create it at the same time.
    session.execute(insert(Deployment).values(id=DEPLOYMENT_ID, tag=tag).on_conflict_do_nothing())
    return session.scalars(query).one()


def prefix(tag: str) -> str:
    """Return the prefix of the names of all clusters of this service."""
    return f"hc-{tag}-"


def cluster_name(tag: str, run_id: str, attempt: int) -> str:
    """Return the name of an attempt's cluster: deterministic, so that a retry adopts it."""
    return f"{prefix(tag)}{run_id[-RUN_CHARS:]}-{attempt}"
