"""People sign in through a provider of identities on loopback, with real keys and signatures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import ECKey, OctKey, RSAKey
from pydantic import SecretStr, ValidationError

from api.http.dashboard.sessions import COOKIE
from api.http.oidc.provider import REFETCH_S, OidcClient, Provider, is_protected
from api.http.oidc.sign_in import COOKIE as SIGN_IN_COOKIE
from api.runs.journal import utc_now
from api.settings import Settings
from api.tables import Person
from api.tables.access.errors import SignInFailed
from api.tables.access.members import accept, remove_member, set_member
from api.tables.access.roles import Role
from api.tables.database import Database
from tests.api.fixtures.migrated import OTHER_PROJECT, PROJECT
from tests.api.http.access.conftest import Cast
from tests.api.http.access.provider import CLIENT_ID, CLIENT_SECRET, OidcServer, serve_provider


@pytest.fixture
def provider() -> Iterator[OidcServer]:
    with serve_provider() as server:
        yield server


@pytest.fixture
def settings(settings: Settings, provider: OidcServer) -> Settings:
    return settings.model_copy(
        update={
            "oidc_issuer": provider.issuer,
            "oidc_client_id": CLIENT_ID,
            "oidc_client_secret": SecretStr(CLIENT_SECRET),
        }
    )


@pytest.fixture
def browser(cast: Cast) -> httpx.AsyncClient:
    return cast.http


def invite(database: Database, project_id: str, role: Role = Role.MEMBER) -> str:
    with database.transaction() as session:
        _, person = set_member(session, project_id, "ada@example.org", role, actor="test")
        return person.id


@pytest.fixture
def ada(database: Database) -> None:
    person_id = invite(database, PROJECT)
    with database.transaction() as session:
        accept(session, PROJECT, person_id, now=utc_now())


async def begin(browser: httpx.AsyncClient, **params: str) -> str:
    """Return the address to which the provider sends the browser back."""
    begun = await browser.get("/login/oidc", params=params)
    assert begun.status_code == 303, begun.text
    async with httpx.AsyncClient() as outside:
        allowed = await outside.get(begun.headers["location"])
    back = urlsplit(allowed.headers["location"])
    assert (back.scheme, back.netloc) == ("http", "service")
    return f"{back.path}?{back.query}"


async def sign_in(browser: httpx.AsyncClient, **params: str) -> httpx.Response:
    return await browser.get(await begin(browser, **params))


async def refused(browser: httpx.AsyncClient, sentence: str) -> None:
    response = await sign_in(browser)
    assert response.status_code == 401, response.text
    assert sentence in response.text
    assert COOKIE not in response.cookies


@pytest.mark.usefixtures("ada")
async def test_a_member_signs_in_reads_and_signs_out_everywhere(
    browser: httpx.AsyncClient, database: Database
) -> None:
    assert "Sign in with your organisation" in (await browser.get("/login")).text
    entered = await sign_in(browser, next="/datasets")
    assert 'content="0; url=/datasets"' in entered.text
    whoami = (await browser.get("/v1/whoami")).json()
    assert (whoami["actor"], whoami["role"]) == ("person:ada@example.org", "member")
    assert (await browser.get("/")).status_code == 200
    assert (await browser.post("/v1/runs", json={})).status_code == 401
    stolen = {"Cookie": f"{COOKIE}={browser.cookies[COOKIE]}"}
    await browser.post("/logout")
    assert COOKIE not in browser.cookies
    assert (await browser.get("/v1/whoami", headers=stolen)).status_code == 401
    with database.transaction() as session:
        assert session.query(Person).one().name == "Ada"


@pytest.mark.usefixtures("ada")
async def test_removing_a_member_ends_the_session(
    browser: httpx.AsyncClient, database: Database
) -> None:
    await sign_in(browser)
    assert (await browser.get("/v1/runs")).status_code == 200
    with database.transaction() as session:
        remove_member(session, PROJECT, "ada@example.org")
    assert (await browser.get("/v1/runs")).status_code == 401


@pytest.mark.usefixtures("ada")
async def test_cookies_are_out_of_reach_of_scripts_and_other_sites(
    browser: httpx.AsyncClient,
) -> None:
    begun = await browser.get("/login/oidc")
    cookie = begun.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert "path=/login/oidc" in cookie
    entered = await sign_in(browser)
    (session,) = [
        each.lower() for each in entered.headers.get_list("set-cookie") if each.startswith(COOKIE)
    ]
    assert "httponly" in session
    assert "samesite=strict" in session


@pytest.mark.usefixtures("ada")
async def test_state_belongs_to_the_browser_and_a_code_works_once(
    browser: httpx.AsyncClient,
) -> None:
    back = await begin(browser)
    own = {"Cookie": f"{SIGN_IN_COOKIE}={browser.cookies[SIGN_IN_COOKIE]}"}
    browser.cookies.clear()
    assert "another browser" in (await browser.get(back)).text
    query = parse_qs(urlsplit(back).query)
    forged = f"/login/oidc/callback?code={query['code'][0]}&state=other"
    assert "another browser" in (await browser.get(forged, headers=own)).text
    assert (await browser.get(back, headers=own)).status_code == 200
    browser.cookies.clear()
    again = await browser.get(back, headers=own)
    assert again.status_code == 401
    assert "refused the request" in again.text


@pytest.mark.usefixtures("ada")
@pytest.mark.parametrize(
    ("claims", "sentence"),
    [
        ({"nonce": "another"}, "not valid for this sign-in"),
        ({"nonce": None}, "not valid for this sign-in"),
        ({"iss": "https://evil.example"}, "not valid for this sign-in"),
        ({"aud": "another service"}, "not valid for this sign-in"),
        ({"exp": 1}, "not valid for this sign-in"),
        ({"aud": [CLIENT_ID, "other"], "azp": "other"}, "another service"),
        ({"aud": [CLIENT_ID, "other"]}, "another service"),
        ({"email_verified": False}, "has not verified your address"),
        ({"email": "eve@example.org", "sub": "eve"}, "No project has added you"),
    ],
)
async def test_a_token_with_wrong_claims_opens_no_session(
    browser: httpx.AsyncClient, provider: OidcServer, claims: dict[str, object], sentence: str
) -> None:
    provider.claims = claims
    await refused(browser, sentence)


@pytest.mark.usefixtures("ada")
async def test_a_signature_of_another_key_opens_no_session(
    browser: httpx.AsyncClient, provider: OidcServer
) -> None:
    provider.published = [provider.key]
    provider.key = RSAKey.generate_key(2048, {"kid": "k1"})
    await refused(browser, "signature")


@pytest.mark.usefixtures("ada")
async def test_a_shared_secret_is_no_signature(
    browser: httpx.AsyncClient, provider: OidcServer
) -> None:
    """RFC 8725 §3.1: a public key must never be taken for the secret of HS256."""
    provider.published = [provider.key]
    public = provider.key.as_pem(private=False)
    provider.key = OctKey.import_key(public.hex(), {"kid": "k1"})  # type: ignore[assignment]
    provider.algorithm = "HS256"
    await refused(browser, "signature")


@pytest.mark.usefixtures("ada")
async def test_the_subject_is_the_person_whatever_the_address(
    browser: httpx.AsyncClient, provider: OidcServer
) -> None:
    assert (await sign_in(browser)).status_code == 200
    provider.email = "ada.lovelace@example.org"
    browser.cookies.clear()
    assert (await sign_in(browser)).status_code == 200
    provider.subject, provider.email = "somebody else", "ada@example.org"
    browser.cookies.clear()
    await refused(browser, "No project has added you")


@pytest.mark.usefixtures("ada")
async def test_a_person_opens_only_projects_of_theirs(browser: httpx.AsyncClient) -> None:
    assert (await sign_in(browser, project=PROJECT)).status_code == 200
    browser.cookies.clear()
    response = await sign_in(browser, project=OTHER_PROJECT)
    assert "no member of this project" in response.text


async def test_a_project_that_nobody_has_joined_learns_nothing_and_opens_for_nobody(
    browser: httpx.AsyncClient, database: Database, cast: Cast
) -> None:
    """A foreign project adds an address before the person's own project does."""
    invite(database, OTHER_PROJECT)
    person_id = invite(database, PROJECT)
    with database.transaction() as session:
        accept(session, PROJECT, person_id, now=utc_now())
    await sign_in(browser)
    assert (await browser.get("/v1/whoami")).json()["project_id"] == PROJECT
    (member,) = (await cast.stranger()("GET", "/v1/members")).json()["data"]
    assert member["email"] == "ada@example.org"
    assert (member["name"], member["last_login_at"], member["accepted_at"]) == (None, None, None)
    (own,) = (await cast.of("admin")("GET", "/v1/members")).json()["data"]
    assert own["name"] == "Ada"
    assert own["last_login_at"] is not None


async def test_a_person_joins_by_the_button_in_the_browser_that_signed_in(
    browser: httpx.AsyncClient, database: Database, cast: Cast
) -> None:
    invite(database, OTHER_PROJECT, Role.VIEWER)
    invite(database, PROJECT, Role.ADMIN)
    page = await sign_in(browser, next="/datasets")
    assert COOKIE not in browser.cookies
    assert (await browser.get("/v1/whoami")).status_code == 401
    choices = re.findall(r'name="choice" value="([^"]+)"', page.text)
    assert [PROJECT in page.text, OTHER_PROJECT in page.text, len(choices)] == [True, True, 2]
    own = {"Cookie": f"{SIGN_IN_COOKIE}={browser.cookies[SIGN_IN_COOKIE]}"}
    browser.cookies.clear()
    path = "/login/oidc/accept"
    for data, headers in ((choices[1], {}), (choices[1] + "x", own), ("", own)):
        refusal = await browser.post(path, data={"choice": data}, headers=headers)
        assert refusal.status_code == 401, refusal.text
    entered = await browser.post(path, data={"choice": choices[1]}, headers=own)
    assert 'content="0; url=/datasets"' in entered.text
    whoami = (await browser.get("/v1/whoami")).json()
    assert (whoami["project_id"], whoami["role"]) == (PROJECT, "admin")
    (other,) = (await cast.stranger()("GET", "/v1/members")).json()["data"]
    assert other["name"] is None


async def test_an_invitation_that_was_taken_back_is_none(
    browser: httpx.AsyncClient, database: Database
) -> None:
    invite(database, PROJECT)
    page = await sign_in(browser, project=PROJECT)
    (choice,) = re.findall(r'name="choice" value="([^"]+)"', page.text)
    with database.transaction() as session:
        remove_member(session, PROJECT, "ada@example.org")
    refusal = await browser.post("/login/oidc/accept", data={"choice": choice})
    assert refusal.status_code == 401
    assert COOKIE not in refusal.cookies


def test_new_keys_of_the_provider_are_fetched_at_most_once_a_minute(provider: OidcServer) -> None:
    now = 0.0
    client = OidcClient(issuer=provider.issuer, client_id=CLIENT_ID, client_secret=CLIENT_SECRET)
    ours = Provider(client, clock=lambda: now)
    assert ours.verify(provider.token("n"), nonce="n", now=utc_now()).subject == "sub-ada"
    provider.key, provider.algorithm = ECKey.generate_key("P-256", {"kid": "k2"}), "ES256"
    for _ in range(5):
        with pytest.raises(SignInFailed):
            ours.verify(provider.token("n"), nonce="n", now=utc_now())
    assert provider.num_key_fetches == 1
    now += REFETCH_S
    assert ours.verify(provider.token("n"), nonce="n", now=utc_now()).email == provider.email
    assert provider.num_key_fetches == 2
    ours.close()


def test_only_addresses_with_https_or_of_this_machine_are_called() -> None:
    assert is_protected("https://accounts.example.org/keys")
    assert is_protected("http://127.0.0.1:8080/keys")
    assert not is_protected("http://accounts.example.org/keys")
    assert not is_protected("http://127.0.0.1.example.org/keys")
    assert not is_protected("file:///etc/passwd")


def test_an_issuer_without_a_client_is_refused_at_start(settings: Settings) -> None:
    values = settings.model_dump() | {"oidc_client_id": None}
    with pytest.raises(ValidationError, match="HILLCLIMB_OIDC_CLIENT_ID"):
        Settings.model_validate(values)
