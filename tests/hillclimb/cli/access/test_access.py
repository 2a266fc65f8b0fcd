"""`hillclimb whoami|keys|members|projects|quotas|audit` against the real service."""

from __future__ import annotations

import pytest

from hillclimb.cli.terminal.exits import Exit
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiProblem
from hillclimb.stack.state.connection import Connection
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import PROJECT
from tests.hillclimb.cli.conftest import Invoke, from_json


def test_a_key_lives_from_its_creation_to_its_revocation(hc: Invoke, served: Served) -> None:
    created = hc("keys", "create", "ci", "--role", "member", "--days", "30")
    secret = created.stdout.splitlines()[0]
    with Client(Connection(url=served.url, api_key=secret)) as client:
        caller = client.access.whoami()
        assert (caller.actor, caller.role, caller.scopes) == (
            "key:ci", "member", ["runs:read", "runs:write"],
        )  # fmt: skip
        listed = hc("keys", "list")
        assert secret not in listed.stdout
        assert secret[:12] in listed.stdout
        key_id = str(caller.key_id)
        rotated = from_json(hc("keys", "rotate", key_id, "--grace-hours", "0", "--json"))
        with pytest.raises(ApiProblem) as refused:
            client.access.whoami()
        assert refused.value.status == 401
    with Client(Connection(url=served.url, api_key=rotated["secret"])) as client:
        assert client.access.whoami().key_id == key_id
        assert "revoked" in hc("keys", "revoke", key_id).stdout
        with pytest.raises(ApiProblem):
            client.access.whoami()


def test_a_key_without_a_scope_is_a_usage_error(hc: Invoke) -> None:
    refused = hc("keys", "create", "ci")
    assert refused.exit_code == Exit.USAGE
    assert "--role viewer" in refused.stderr


def test_members_are_added_changed_listed_and_removed(hc: Invoke) -> None:
    assert "viewer" in hc("members", "set", "Ada@example.org", "--role", "viewer").stdout
    assert "admin" in hc("members", "set", "ada@example.org", "--role", "admin").stdout
    assert "ada@example.org" in hc("members", "list").stdout
    assert "no member any more" in hc("members", "remove", "ada@example.org").stdout
    assert hc("members", "remove", "ada@example.org").exit_code == Exit.NOT_FOUND
    log = hc("audit", "--target", "ada@example.org").stdout
    assert "members role: viewer → admin" in log
    assert len(from_json(hc("audit", "--route", "DELETE", "--json"))["data"]) == 1


def test_projects_and_their_quotas_are_the_operators(hc: Invoke) -> None:
    created = from_json(hc("projects", "create", "new team", "--json"))
    assert "new team" in hc("projects", "list").stdout
    shown = hc("projects", "quotas", created["id"], "--queued-runs", "7").stdout
    row = next(line for line in shown.splitlines() if "queued_runs" in line)
    assert row.split() == ["queued_runs", "0", "7", "set"]
    assert "default" in hc("quotas").stdout


def test_whoami_names_project_role_and_scopes(hc: Invoke) -> None:
    shown = hc("whoami").stdout
    assert "key:test in project" in shown
    assert "role admin" in shown


def test_a_project_is_deleted_after_a_yes_and_its_key_ends(hc: Invoke, served: Served) -> None:
    created = from_json(hc("projects", "create", "old team", "--json"))
    assert hc("projects", "delete", created["id"]).exit_code != Exit.OK  # nobody said yes
    assert "old team" in hc("projects", "list").stdout
    assert "old team" in hc("projects", "delete", created["id"], "--yes").stdout
    assert "old team" not in hc("projects", "list").stdout
    assert hc("projects", "delete", created["id"], "--yes").exit_code == Exit.NOT_FOUND
    connection = Connection(url=served.url, api_key=created["key"]["secret"])
    with Client(connection) as client, pytest.raises(ApiProblem) as refused:
        client.access.whoami()
    assert refused.value.status == 401
    assert hc("projects", "delete", PROJECT, "--yes").exit_code == Exit.REFUSED
