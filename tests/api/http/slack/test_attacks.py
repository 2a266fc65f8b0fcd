"""A Slack user who is linked to another project, with ids, buttons and forms of this one."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from api.http.slack.commands import COMMANDS
from api.tables.access.identity import DEFAULT_PROJECT
from api.tables.database import Database
from tests.api.http.access import test_crossing
from tests.api.http.conftest import READ_ONLY, STRANGER
from tests.api.http.slack.conftest import INTERACTIONS, Person, buttons, send
from tests.fixtures.factories import spec_body
from tests.fixtures.fake_slack import FakeSlack, sign, submission

MARK = "crownjewel"
BUTTONS = (
    "run.open", "run.logs", "run.compare", "run.fork", "run.pause", "run.resume", "run.cancel",
    "budget.approve", "guard.acknowledge", "plan.confirm", "plan.discard",
)  # fmt: skip


@pytest.fixture
def rows(database: Database, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that returns every row of the owner, who is the project of Anna's key."""
    monkeypatch.setattr(test_crossing, "OWNER", DEFAULT_PROJECT)

    def read() -> dict[str, list[str]]:
        found = test_crossing.rows_of_owner(database)
        # What Anna's own request leaves, and which key was used when.
        return {name: found[name] for name in found if name not in ("slack_requests",)}

    return read


async def submit(client: httpx.AsyncClient, **more: object) -> str:
    answer = await client.post("/v1/runs", json=spec_body(name=MARK, **more))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


@pytest.mark.parametrize(
    "key",
    [pytest.param(STRANGER, id="stranger"),
     pytest.param(READ_ONLY, id="viewer", marks=pytest.mark.long)],
)  # fmt: skip
async def test_every_command_and_button_with_a_foreign_id_reads_and_changes_nothing(
    anna: Person, ben: Person, client: httpx.AsyncClient, slack: FakeSlack, rows: Any, key: str
) -> None:
    """Ben is another project's member, or may only read this one: then he changes nothing."""
    run_id = await submit(client)
    await anna.link()
    plan = buttons(await anna.say("run qwen3-8b"))
    await ben.link(key)
    before, num_views = rows(), len(slack.views)
    said: list[str] = []
    for name in COMMANDS:
        if name in ("link", "help"):
            continue
        for words in (f"{run_id}", f"{run_id}@0", MARK, f"{run_id} optimizer.lr=1e-4", "@last"):
            reply = json.dumps(await ben.say(f"{name} {words}"))
            said += [] if words == MARK else [reply]  # which repeats the word
    values = [run_id, f"{run_id}:1", f"{run_id}:25.0:0.0:1", f"{run_id}:no_signal:1"]
    for number, action in enumerate(BUTTONS):
        for value in [*values, *plan.values()]:
            pressed = await ben.press(action, value, ts=f"17000000{number}.0{values.count(value)}")
            assert pressed.status_code == 200
    assert rows() == before
    if key == STRANGER:
        assert not any(MARK in text for text in said)
        assert len(slack.views) == num_views, "no form of a foreign run opens"


async def test_a_form_that_names_a_foreign_run_forks_nothing(
    anna: Person, ben: Person, client: httpx.AsyncClient, slack: FakeSlack, rows: Any
) -> None:
    """Slack keeps the form's metadata; whoever could change them would have the run's name there.

    The channel in them is one that the owner's project alone may post to.
    """
    run_id = await submit(client)
    await anna.link()
    await ben.link(STRANGER)
    await anna.press("run.fork", run_id, ts="1700000000.1")
    view = slack.views[-1]
    before = rows()
    for metadata in (
        view["private_metadata"],
        json.dumps({"run": MARK, "channel": "C0OWNERS", "ts": None}),
    ):
        forged = view | {"private_metadata": metadata}
        body = submission(forged, {"name": "stolen"}, view_id=f"V{len(metadata)}", user=ben.user)
        assert (await send(client, INTERACTIONS, sign(body))).status_code == 200
    assert rows() == before


async def test_a_link_of_an_agents_key_spends_what_the_key_may(
    anna: Person, client: httpx.AsyncClient
) -> None:
    """Neither Slack nor a browser is a way around the grant."""
    made = (await client.post("/v1/agent-keys", json={"name": "agent", "num_runs": 1})).json()
    await anna.link(made["key"])
    run_id = await submit(client)
    first = await anna.say(f"fork {run_id} name=one")
    assert "forked from" in first["text"]
    second = await anna.say(f"fork {run_id} name=two")
    assert "The grant of the key" in second["text"]
    client.headers.pop("Authorization")
    await client.post("/login", data={"key": made["key"]})
    page = (await client.get("/submit")).text
    token = page.split('name="token" value="', 1)[1].split('"', 1)[0]
    text = json.dumps(spec_body(name="three"))
    fields = {"token": token, "view": "text", "text": text, "key": "k"}
    refused = await client.post("/submit", data=fields)
    assert refused.status_code == 422
    assert "The grant of the key" in refused.text
