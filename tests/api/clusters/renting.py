"""A run whose attempt waits for its rented cluster's first node."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from api.admission.submit import submit
from api.clusters import store as clusters
from api.runs import store
from api.scheduling import attempts
from api.scheduling.rented.bootstrap import bootstrap_token
from api.tables.database import Database
from hillclimb.protocol.launch import BootstrapClaim
from tests.fixtures.factories import make_spec
from tests.worker.api_presence import be_there

NONCE, OTHER_NONCE = "n" * 16, "o" * 16


@dataclass(frozen=True, slots=True)
class Rented:
    run_id: str
    attempt_id: str
    cluster_id: str

    def code(
        self, secret: str, nonce: str = NONCE, rank: int = 0, member: str = ""
    ) -> BootstrapClaim:
        code = bootstrap_token(self.attempt_id, secret=secret)
        return BootstrapClaim(
            attempt_id=self.attempt_id, code=code, nonce=nonce, rank=rank, member=member
        )


def rent(
    database: Database,
    project_id: str,
    *,
    now: datetime,
    api_reachable: bool = True,
    num_nodes: int = 1,
    **sections: Any,
) -> Rented:
    sky = {
        "candidates": [{"infra": "slurm/test", "accelerators": "H100:8"}],
        "api_reachable": api_reachable,
        "num_nodes": num_nodes,
    }
    backend = {"type": "skypilot", "skypilot": sky}
    spec = make_spec(backend=backend, experimental=True, **sections)
    with database.transaction() as session:
        run_id = submit(session, spec, project_id=project_id, actor="t", now=now).id
    with database.transaction() as session:
        be_there(session)
        run = store.lock_run(session, run_id)
        attempt = attempts.schedule(session, run, now=now)
        assert attempt is not None
        cluster = clusters.of_attempt(session, attempt.id)
        assert cluster is not None
        return Rented(run_id, attempt.id, cluster.id)
