"""Names that two projects may both use, and rows that all of them share."""

from __future__ import annotations

import base64
import json
from datetime import timedelta

import httpx
import pytest

from api.clusters import exclusions
from api.runs.journal import utc_now
from api.tables import Person
from api.tables.access.errors import SignInFailed
from api.tables.access.members import ConfirmedIdentity, find_member, set_member, sign_in
from api.tables.access.roles import Role
from api.tables.database import Database
from hillclimb.spec.backend.skypilot import CandidateSpec
from tests.api.fixtures.migrated import OTHER_PROJECT, PROJECT
from tests.api.fixtures.story import PROJECT as OWNER
from tests.api.fixtures.story import Story, spec
from tests.api.http.access.conftest import Cast
from tests.fixtures.factories import spec_body

KELVIN = "\u212a"
"""Its small letter is the k of ASCII."""


async def test_an_idempotency_key_of_another_project_is_another_key(cast: Cast) -> None:
    """Else a guessed key answers with the owner's run, or keeps the owner's run from being made."""
    body, headers = spec_body(name="crownjewel"), {"Idempotency-Key": "nightly"}
    ids = set()
    for caller in (cast.of("member"), cast.stranger("member")):
        sent = headers | {"Authorization": f"Bearer {caller.secret}"}
        answers = [await cast.http.post("/v1/runs", json=body, headers=sent) for _ in range(2)]
        assert [each.status_code for each in answers] == [201, 201]
        assert answers[0].json()["id"] == answers[1].json()["id"]
        ids.add(answers[0].json()["id"])
        assert (await caller("GET", f"/v1/runs/{answers[0].json()['id']}")).status_code == 200
    assert len(ids) == 2


async def test_a_cursor_of_another_project_is_refused(cast: Cast) -> None:
    owner, stranger = cast.of("member"), cast.stranger("member")
    for number in range(2):
        assert (await owner("POST", "/v1/runs", json=spec_body(name=f"r{number}"))).is_success
    page = (await owner("GET", "/v1/runs?limit=1")).json()
    stolen = await stranger("GET", "/v1/runs", params={"limit": 1, "cursor": page["next_cursor"]})
    assert stolen.status_code == 400
    forged = base64.urlsafe_b64encode(b"\0" * 16 + json.dumps(["2999-01-01", "z"]).encode())
    answer = await stranger("GET", "/v1/runs", params={"cursor": forged.decode().rstrip("=")})
    assert answer.status_code == 400


async def test_an_exclusion_of_a_cloud_names_no_run_and_no_cluster(
    cast: Cast, database: Database
) -> None:
    """Every project sees it; the run whose launch failed is one project's."""
    story = Story(database)
    story.prepare()
    run_id = story.submit(spec(name="crownjewel"))
    cluster = f"hc-ab12-{run_id[-10:]}-1"
    candidate = CandidateSpec.model_validate({"infra": "aws/us-east-1", "accelerators": "H100:8"})
    now = utc_now()
    reason = f"no capacity for {cluster} of {run_id} ({OWNER}): quota of vCPUs"
    with database.transaction() as session:
        exclusions.exclude(session, candidate, reason, until=now + timedelta(hours=1), now=now)
    for path in ("/v1/clouds/exclusions", "/v1/clusters"):
        text = (await cast.stranger("viewer")("GET", path)).text
        assert "quota of vCPUs" in text
        assert run_id not in text
        assert cluster not in text


def identity(email: str, subject: str = "s-mallory") -> ConfirmedIdentity:
    return ConfirmedIdentity(issuer="https://id", subject=subject, email=email, name=None)


@pytest.mark.parametrize(
    "email", [f"{KELVIN}ate@example.org", f"kate@{KELVIN}elvin.example.org".replace("kate", "ada")]
)
def test_another_address_that_looks_alike_is_not_the_invited_person(
    database: Database, email: str
) -> None:
    """The provider has verified it, for whoever has it."""
    invited = email.replace(KELVIN, "k")
    with database.transaction() as session:
        set_member(session, PROJECT, invited, Role.ADMIN, actor="test")
    with database.transaction() as session, pytest.raises(SignInFailed):
        sign_in(session, identity(email), now=utc_now())
    with database.transaction() as session:
        person = sign_in(session, identity(invited.upper(), "s-kate"), now=utc_now())
        assert person.email == invited, "letters of ASCII are alike in both cases"


def test_a_second_identity_with_the_address_of_a_person_is_not_that_person(
    database: Database,
) -> None:
    """An address that a company gives to the next employee, or that another provider confirms."""
    with database.transaction() as session:
        set_member(session, PROJECT, "kate@example.org", Role.ADMIN, actor="test")
        sign_in(session, identity("kate@example.org", "s-kate"), now=utc_now())
    with database.transaction() as session, pytest.raises(SignInFailed):
        sign_in(session, identity("kate@example.org", "s-next"), now=utc_now())
    with database.transaction() as session:
        # Nor does an invitation of another project give the address away.
        set_member(session, OTHER_PROJECT, "kate@example.org", Role.ADMIN, actor="mallory")
        assert session.query(Person).one().subject == "s-kate"
        assert find_member(session, PROJECT, "KATE@example.org").role == "admin"


async def test_a_dataset_of_the_same_name_is_another_dataset(cast: Cast) -> None:
    tasks = "\n".join(
        json.dumps({"task_key": f"t{n}", "prompt": "crownjewel", "env_key": "booking"})
        for n in range(20)
    )
    owner, stranger = cast.of("member"), cast.stranger("member")
    assert (await owner("POST", "/v1/datasets/vault/versions", content=tasks)).is_success
    mine = tasks.replace("crownjewel", "mine")
    assert (await stranger("POST", "/v1/datasets/vault/versions", content=mine)).is_success
    theirs: httpx.Response = await stranger("GET", "/v1/datasets/vault/versions/1/tasks")
    assert "crownjewel" not in theirs.text
    assert (await stranger("GET", "/v1/datasets/vault/versions/2")).status_code == 404
    stored = (await owner("GET", "/v1/datasets/vault/versions/1")).json()
    named = {"name": "vault", "version": 1, "id": stored["id"], "digest": stored["digest"]}
    body = spec_body(data={"dataset": named, "env_keys": ["booking"]})
    refused = await stranger("POST", "/v1/runs", json=body)
    assert refused.status_code == 422, refused.text
    assert "crownjewel" not in refused.text
