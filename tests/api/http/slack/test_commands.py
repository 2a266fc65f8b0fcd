"""Commands: who may do what, and what bad input is answered with."""

from __future__ import annotations

import json

import httpx
import pytest
from fastapi import FastAPI

from api.http.slack.commands import COMMANDS as KNOWN
from api.http.slack.processing import process_due
from api.tables import SlackRequest
from api.tables.access.identity import Scope, ensure_key
from api.tables.database import Database
from tests.api.http.conftest import READ_ONLY, STRANGER, RememberingBell, bearer
from tests.api.http.slack.conftest import EVENTS, Person, buttons, send
from tests.fixtures.factories import spec_body
from tests.fixtures.fake_slack import CHANNEL, TEAM, Failure, FakeSlack, sign

COLLEAGUE = "hc_colleague_" + "c" * 51


async def submit(client: httpx.AsyncClient, name: str, **more: object) -> str:
    answer = await client.post("/v1/runs", json=spec_body(name=name, **more))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


async def test_without_a_link_only_help_and_link_work(anna: Person, slack: FakeSlack) -> None:
    reply = await anna.say("help")
    assert reply["response_type"] == "ephemeral"
    assert all(f"`{name}" in str(reply["blocks"]) for name in KNOWN)
    one = str((await anna.say("help fork"))["blocks"])
    assert "`fork RUN[@STEP]" in one
    assert "`cancel" not in one
    for name in set(KNOWN) - {"help", "link"}:
        reply = await anna.say(f"{name} x")
        assert "not linked to an API key: run `hillclimb slack link`" in reply["text"], name


async def test_a_link_code_works_once_and_ends_with_its_link(
    anna: Person, ben: Person, client: httpx.AsyncClient, database: Database
) -> None:
    code = (await client.post("/v1/slack/link-codes")).json()["code"]
    assert "act as the key `bootstrap`" in (await anna.say(f"link {code.lower()}"))["text"]
    assert "was used before or has expired" in (await ben.say(f"link {code}"))["text"]
    (link,) = (await client.get("/v1/slack/links")).json()["data"]
    assert (link["team_id"], link["user_id"]) == (TEAM, "U0ANNA")
    strange = await client.delete(f"/v1/slack/links/{TEAM}/U0ANNA", headers=bearer(STRANGER))
    assert strange.status_code == 404
    assert (await client.get("/v1/slack/links", headers=bearer(STRANGER))).json()["data"] == []
    with database.transaction() as session:
        ensure_key(session, COLLEAGUE, name="colleague", scopes=[Scope.RUNS_READ, Scope.RUNS_WRITE])
    path = f"/v1/slack/links/{TEAM}/U0ANNA"
    colleague = await client.delete(path, headers=bearer(COLLEAGUE))
    assert (colleague.status_code, colleague.json()["code"]) == (403, "not_allowed")
    assert (await client.delete(path)).json()["data"] == []
    assert "not linked" in (await anna.say("runs"))["text"]


async def test_people_see_and_touch_their_own_project_alone(
    anna: Person, ben: Person, client: httpx.AsyncClient
) -> None:
    run_id = await submit(client, "mine")
    await anna.link()
    await ben.link(STRANGER)
    assert "mine" in (await anna.say("runs"))["text"]
    assert "mine" not in (await ben.say("runs"))["text"]
    for text in (f"status {run_id}", f"cancel {run_id}", f"watch {run_id}", "status mine"):
        assert "This project has no run yet" in (await ben.say(text))["text"], text
    assert (await client.get(f"/v1/runs/{run_id}")).json()["status"] == "queued"


async def test_a_read_only_key_reads_and_does_not_act(
    ben: Person, client: httpx.AsyncClient
) -> None:
    answer = await client.post("/v1/slack/link-codes", headers=bearer(READ_ONLY))
    await ben.say(f"link {answer.json()['code']}")
    run_id = await submit(client, "mine")
    assert "This project has no run" not in (await ben.say(f"status {run_id}"))["text"]
    for text in (f"cancel {run_id}", f"fork {run_id} optimizer.lr=1e-4", "run qwen3-8b"):
        assert "may not do this" in (await ben.say(text))["text"], text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("statsu", "There is no command statsu. Did you mean status?"),
        ("run qwen3-8", "There is no preset qwen3-8, and no run. Did you mean qwen3-8b"),
        ("run", "Name one preset, or a run to copy, then changes"),
        ("run climb optimizer.lrr=1", "The spec is not valid: optimizer.lrr: unknown key"),
        ("run climb optimizer.lr=abc", "The spec is not valid: optimizer.lr: 'abc' cannot be used"),
        ("run climb optimizer.lr", "optimizer.lr is no change: write KEY=VALUE"),
        ("run my climb a=1", "climb is no change: write KEY=VALUE, such as optimizer.lr=1e-5. A"),
        ("run climb@5", "`/hillclimb fork climb@5` starts from the checkpoint of a step."),
        ("run climb data.env_keys=[", "The value of data.env_keys cannot be read"),
        ("plan", "Name one preset, or a run to copy, then changes"),
        ("plan climb budget.usd=5", "The spec is not valid: a budget limits the cost of rented"),
        ("run qwen3-8b =1", "=1 has no key: write KEY=VALUE"),
        ("status klimb", "There is no run klimb. Did you mean climb?"),
        ("status “climb", "A quote is open"),
        ("status my climb", 'A name with spaces is quoted: "my climb".'),
        ("status " + "x" * 200, "There is no run " + "x" * 60 + "…. Did"),
        ("status \u202eclimp", "There is no run climp. Did you mean climb?"),
        ("compare", "Name one or two runs"),
        ("compare a b c", "Name one or two runs"),
        ("compare climb klimb", "There is no run klimb. Did you mean climb?"),
        ("pause", "Name the run: `/hillclimb pause RUN`"),
        ("pause klimb", "There is no run klimb."),
        ("cancel", "Name the run: `/hillclimb cancel RUN`"),
        ("cancel climb climb", "One run is enough"),
        ("cost klimb", "There is no run klimb."),
        ("watch klimb", "There is no run klimb."),
        ("runs wating", "There is no status wating: take one of queued"),
        ("signal climb", "has no training step yet"),
        ("envs climb", "has no evaluation yet"),
        ("compare climb climb", "no evaluation"),
        ("fork climb optimizer.lr=fast", "optimizer"),
        ("fork climb x.y.z=1", "The spec is not valid: x: unknown key"),
        ("fork", "Name the run: `/hillclimb fork RUN[@STEP] KEY=VALUE…`"),
        ("fork climb again", "again is no change"),
        ("fork climb@7", "no complete checkpoint at step 7"),
        ("changelog v9", "There is no experiment 'v9'"),
        ("changelog v9 v10", "One experiment is enough"),
        ("resume climb", "is queued: only a paused or ended run resumes"),
        ("resume", "Name the run: `/hillclimb resume RUN`"),
        ("link", "Send `/hillclimb link CODE`"),
        ("link NOTACODE", "was used before or has expired"),
        ("help statsu", "There is no command statsu. Did you mean status?"),
        ("/hillclimb stats", "There is no command stats. Did you mean status?"),
    ],
)
async def test_bad_input_is_answered_with_a_sentence_that_says_what_would_do(
    anna: Person, client: httpx.AsyncClient, text: str, sentence: str
) -> None:
    await submit(client, "climb")
    await anna.link()
    reply = await anna.say(text)
    assert sentence.replace("“", '"') in reply["text"]
    assert reply["response_type"] == "ephemeral"
    assert "inside the service" not in reply["text"]


async def test_reads_answer_with_what_the_routes_have(
    anna: Person, client: httpx.AsyncClient
) -> None:
    run_id = await submit(client, "climb")
    await anna.link()
    shown = await anna.say(f"status {run_id[:14]}")
    assert f"http://service/runs/{run_id}" in str(shown["blocks"])
    assert (await anna.say("status @last"))["text"] == "climb: queued, step 0 of 3"
    assert (await anna.say("cost climb"))["text"].startswith("climb: $0.00, 0.00 h")
    assert "No experiment yet." in str((await anna.say("changelog"))["blocks"])
    assert "climb" in (await anna.say("runs queued"))["text"]
    assert (await anna.say("runs failed"))["text"].startswith("No run.")


async def test_pause_resume_and_cancel_act_as_the_linked_person(
    anna: Person, client: httpx.AsyncClient, task_queue: RememberingBell
) -> None:
    run_id = await submit(client, "climb")
    await anna.link()
    task_queue.rung.clear()
    assert (await anna.say("pause climb"))["text"] == "*climb* is paused (<@U0ANNA>)."
    assert task_queue.rung[0] == run_id
    assert (await anna.say("resume climb"))["response_type"] == "in_channel"
    assert (await anna.say("cancel climb"))["text"] == "*climb* is cancelled (<@U0ANNA>)."
    events = (await client.get(f"/v1/runs/{run_id}/events")).json()["data"]
    actors = {each["actor"] for each in events if each["type"].endswith("_requested")}
    assert actors == {"key:bootstrap slack:U0ANNA"}


async def test_a_mention_is_a_command_that_is_answered_in_its_thread_once(
    anna: Person, client: httpx.AsyncClient, slack: FakeSlack
) -> None:
    await anna.link()
    event = {"type": "app_mention", "user": "U0ANNA", "channel": CHANNEL, "ts": "17.5"}
    event["text"] = "<@U0BOT> runs"
    body = {"type": "event_callback", "team_id": TEAM, "event_id": "Ev1", "event": event}
    before = len(slack.whispers)
    for _ in range(2):  # Slack repeats an event that it believes lost, signed anew
        body["retry"] = len(slack.whispers)
        answer = await send(client, EVENTS, sign(json.dumps(body).encode(), form=False))
        assert answer.status_code == 200
    (reply,) = slack.whispers[before:]
    assert reply["text"].startswith("No run.")
    assert (reply["thread_ts"], reply["user"]) == ("17.5", "U0ANNA")


async def test_uninstalling_the_app_ends_every_link_of_the_workspace(
    anna: Person, client: httpx.AsyncClient
) -> None:
    await anna.link()
    body = {"type": "event_callback", "team_id": TEAM, "event_id": "Ev2"}
    body["event"] = {"type": "app_uninstalled"}
    await send(client, EVENTS, sign(json.dumps(body).encode(), form=False))
    assert (await client.get("/v1/slack/links")).json()["data"] == []


async def test_a_plan_creates_nothing_and_shows_what_would_run(
    anna: Person, client: httpx.AsyncClient
) -> None:
    await submit(client, "climb")
    await anna.link()
    plan = await anna.say("plan climb name=again optimizer.lr=1e-5 schedule.total_steps=7")
    assert buttons(plan) == {}
    text = str(plan["blocks"])
    assert "*Plan of again*, 7 steps" in text
    assert "lr 1e-05" in text
    assert "no machines are rented" in text
    assert len((await client.get("/v1/runs")).json()["data"]) == 1


async def test_a_reply_that_slack_does_not_take_is_posted_later(
    anna: Person, slack: FakeSlack, app: FastAPI, database: Database
) -> None:
    await anna.link()
    slack.failures.append(Failure(status=429, retry_after="60"))
    with pytest.raises(ValueError, match="not enough values"):
        await anna.say("runs")
    with database.transaction() as session:
        row = session.query(SlackRequest).order_by(SlackRequest.id.desc()).first()
        assert row is not None
        assert row.state == "answered"
        row.next_try_at = row.created_at
    services = app.state.services
    assert process_due(services) == 1
    assert slack.whispers[-1]["text"].startswith("No run.")
    assert process_due(services) == 0
