"""Names of clusters: the truth about whose they are, readable back from a provisioner's list."""

from __future__ import annotations

import secrets

from sqlalchemy import select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.orm import Session

from api.tables import Deployment

ONLY = "this"
"""Id of the one row of deployments."""
TAG_CHARS = "0123456789abcdefghjkmnpqrstvwxyz"
TAG_LENGTH = 4
RUN_CHARS = 10
"""Of a run's id, from its random end: clouds limit the length of names."""


def deployment_tag(session: Session) -> str:
    """Return this service's tag, made once per database.

    Two services that share a cloud account never touch each other's clusters.
    """
    tag = "".join(secrets.choice(TAG_CHARS) for _ in range(TAG_LENGTH))
    session.execute(insert(Deployment).values(id=ONLY, tag=tag).on_conflict_do_nothing())
    return session.scalars(select(Deployment.tag).where(Deployment.id == ONLY)).one()


def prefix(tag: str) -> str:
    """Return what the names of all our clusters begin with."""
    return f"hc-{tag}-"


def cluster_name(tag: str, run_id: str, attempt: int) -> str:
    """Return the name of an attempt's cluster: whoever asks gets the same, and adopts it."""
    return f"{prefix(tag)}{run_id[-RUN_CHARS:]}-{attempt}"
