"""Whole conversations: from a command to an ended run, with restarts in between."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

import httpx
import pytest
from fastapi import FastAPI
from sqlalchemy import select, update

from api.http.slack.processing import process_due
from api.notices.deliver import Delivery, deliver_due
from api.notices.refresh import refresh_due
from api.notices.slack.web_api import SlackApi
from api.runs import store
from api.runs.journal import Draft, append, utc_now
from api.tables import BudgetExtension, OutboxMessage, SlackRequest
from api.tables.access.identity import DEFAULT_PROJECT
from api.tables.database import Database
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures import story as stories
from tests.api.fixtures.serving import serve
from tests.api.fixtures.story import Story
from tests.api.fixtures.story_fixtures import story, story_url
from tests.api.http.slack.conftest import COMMANDS, Person, buttons
from tests.fixtures.factories import spec_body
from tests.fixtures.fake_slack import (
    SIGNING_SECRET,
    TOKEN,
    Failure,
    FakeSlack,
    command,
    run_fake_slack,
    sign,
)

__all__ = ["story", "story_url"]


@dataclass
class Worker:
    """The deliverer of the worker, which can be replaced by a new one at any time."""

    delivery: Delivery
    now: datetime

    def tick(self) -> None:
        self.now += timedelta(seconds=6)
        deliver_due(self.delivery)
        refresh_due(self.delivery)

    def restart(self) -> None:
        self.delivery = replace(self.delivery, rng=random.Random(self.now.timestamp()))


@pytest.fixture
def worker(database: Database, slack: FakeSlack) -> Worker:
    api = SlackApi(token=TOKEN, base_url=slack.base_url, timeout_s=2.0)
    delivery = Delivery(database=database, slack=api, public_url="http://service")
    made = Worker(delivery, utc_now())
    made.delivery = replace(delivery, clock=lambda: made.now)
    return made


@pytest.fixture
def trainer(database: Database, monkeypatch: pytest.MonkeyPatch) -> Story:
    """Runs what the default project submits."""
    monkeypatch.setattr(stories, "PROJECT", DEFAULT_PROJECT)
    return Story(database, now=utc_now())


async def submit(client: httpx.AsyncClient, name: str, **more: object) -> str:
    answer = await client.post("/v1/runs", json=spec_body(name=name, **more))
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def live_ts(slack: FakeSlack, name: str) -> str:
    """The ts of the run's live message; there is exactly one."""
    (ts,) = [
        ts
        for ts, body in slack.shown.items()
        if "thread_ts" not in body and body["blocks"][0].get("text", {}).get("text", "")
        .startswith(f"{name}:")
    ]  # fmt: skip
    return ts


def replies(slack: FakeSlack, ts: str) -> list[str]:
    return [post["text"] for post in slack.posts if post.get("thread_ts") == ts]


async def test_from_the_command_over_a_fork_to_the_end_nothing_is_doubled_or_lost(
    anna: Person,
    client: httpx.AsyncClient,
    slack: FakeSlack,
    worker: Worker,
    trainer: Story,
    app: FastAPI,
) -> None:
    await submit(client, "base")
    await anna.link()
    run_id = await confirm_plan(anna, client)
    worker.tick()
    ts = live_ts(slack, "first")
    assert "first: queued" in slack.shown[ts]["blocks"][0]["text"]["text"]
    train_with_restarts(worker, trainer, run_id)
    assert "*pass@1* sampled: *20.0 % → 60.0 %*" in str(slack.shown[ts]["blocks"])
    assert len(replies(slack, ts)) == 3
    live = buttons(slack.shown[ts])
    await fork_by_form(anna, client, run_id, button=live["run.fork"], ts=ts)
    assert replies(slack, ts)[-1].startswith("*second* forked from first")
    worker.restart()
    worker.tick()
    assert live_ts(slack, "second") != ts
    for _ in range(2):
        await anna.press("run.cancel", live["run.cancel"], ts=ts)
    assert replies(slack, ts)[-1] == "*first* is cancelling (<@U0ANNA>)."
    trainer.finish(run_id, 10, ReasonCode.CANCELLED_BY_USER)
    worker.tick()
    worker.tick()
    texts = replies(slack, ts)
    assert texts[-1] == "Run first cancelled: cancelled_by_user"
    assert len(texts) == len(set(texts)) == 6
    end = str(slack.posts[-1]["blocks"])
    assert "checkpoint of step 10 is kept" in end
    assert "no machines were rented" in end
    assert "first: cancelled" in slack.shown[ts]["blocks"][0]["text"]["text"]
    assert set(buttons(slack.shown[ts])) == {"run.open", "run.logs", "run.compare", "run.fork"}
    assert process_due(app.state.services) == 0


async def confirm_plan(person: Person, client: httpx.AsyncClient) -> str:
    """Plan the run `first`, submit it by a double click, and return its id."""
    plan = await person.say("run base name=first schedule.total_steps=40")
    for _ in range(2):
        await person.press("plan.confirm", buttons(plan)["plan.confirm"], ts="1.1")
    assert person.slack.whispers[-1]["replace_original"] is True
    runs = await runs_by_name(client)
    assert sorted(runs) == ["base", "first"]
    return runs["first"]


def train_with_restarts(worker: Worker, trainer: Story, run_id: str) -> None:
    """Train to step 10, while the deliverer is replaced between two messages of a batch."""
    trainer.launch(run_id)
    trainer.push(run_id, trainer.started(run_id), trainer.evaluation(run_id, 0, {"booking": 0.2}))
    deliver_due(worker.delivery, limit=1)
    worker.restart()
    worker.tick()
    trainer.push(run_id, trainer.step(run_id, 10, {"booking": 0.5}))
    trainer.push(run_id, trainer.evaluation(run_id, 10, {"booking": 0.6}))
    trainer.push(run_id, trainer.checkpoint(run_id, 10))
    worker.restart()
    worker.tick()
    worker.tick()


async def fork_by_form(
    person: Person, client: httpx.AsyncClient, run_id: str, *, button: str, ts: str
) -> None:
    """Fork the run as `second` by its form, first with mistakes, then twice."""
    await person.press("run.fork", button, ts=ts)
    (form,) = person.slack.views
    assert form["title"]["text"] == "Fork a run"
    wrong = await person.fill_in({"changes": "optimizer.lr", "step": "ten", "name": ""})
    assert wrong.json()["response_action"] == "errors"
    assert set(wrong.json()["errors"]) == {"changes", "step"}
    for _ in range(2):
        await person.fill_in({"changes": "optimizer.lr=1e-5", "step": "10", "name": "second"})
    runs = await runs_by_name(client)
    assert sorted(runs) == ["base", "first", "second"]
    forked = (await client.get(f"/v1/runs/{runs['second']}")).json()
    assert forked["spec"]["optimizer"]["lr"] == 1e-5
    assert forked["spec"]["lineage"]["forked_from"] == {"run_id": run_id, "step": 10}
    assert forked["created_by"] == "key:bootstrap slack:U0ANNA"


async def runs_by_name(client: httpx.AsyncClient) -> dict[str, str]:
    return {each["name"]: each["id"] for each in (await client.get("/v1/runs")).json()["data"]}


async def test_more_budget_is_approved_once_whoever_presses(
    anna: Person,
    ben: Person,
    client: httpx.AsyncClient,
    slack: FakeSlack,
    worker: Worker,
    database: Database,
) -> None:
    candidates = [{"infra": "lambda", "accelerators": "H100:8"}]
    skypilot = {"candidates": candidates, "max_hours": 10}
    run_id = await submit(
        client,
        "rich",
        backend={"type": "skypilot", "skypilot": skypilot},
        experimental=True,
        budget={"usd": 40.0},
        notify={"slack": {"channel": "#runs"}},
    )
    await anna.link()
    await ben.link()
    with database.transaction() as session:
        run = store.lock_run(session, run_id)
        data = {"owner": "run", "message": "80% of the budget is used (run: $32.00 of $40.00)."}
        append(session, run, [Draft(type="budget.warned", data=data)])
    worker.tick()
    ts = live_ts(slack, "rich")
    warning = slack.posts[-1]
    assert warning["thread_ts"] == ts
    (value,) = buttons(warning).values()
    agent = await client.post("/v1/agent-keys", json={"name": "agent", "num_runs": 1})
    carl = Person(client, slack, "U0CARL")
    await carl.link(agent.json()["key"])
    await carl.press("budget.approve", value, ts="1700000000.000002")
    assert "less than $10 and 0 h. Nothing was extended" in slack.whispers[-1]["text"]
    for person in (anna, anna, ben):
        await person.press("budget.approve", value, ts="1700000000.000002")
    with database.transaction() as session:
        (extension,) = session.scalars(select(BudgetExtension))
        assert (extension.usd, extension.granted_by) == (10.0, "key:bootstrap slack:U0ANNA")


async def test_a_guard_is_acknowledged_by_the_first_to_press(
    anna: Person,
    ben: Person,
    client: httpx.AsyncClient,
    slack: FakeSlack,
    worker: Worker,
    trainer: Story,
) -> None:
    guards = {"no_signal": {"steps": 1, "policy": "alert"}}
    run_id = await submit(client, "flat", guards=guards, notify={"slack": {"channel": "#runs"}})
    await anna.link()
    await ben.link()
    trainer.launch(run_id)
    trainer.push(run_id, trainer.started(run_id), trainer.step(run_id, 1, {"booking": 1.0}))
    worker.tick()
    (post,) = [each for each in slack.posts if "guard.acknowledge" in buttons(each)]
    value = buttons(post)["guard.acknowledge"]
    for person in (ben, anna):
        await person.press("guard.acknowledge", value, ts="1700000000.000003")
    (trip,) = (await client.get(f"/v1/runs/{run_id}/guards")).json()["trips"]
    assert trip["acknowledged_by"] == "key:bootstrap slack:U0BEN"
    again = await client.post(f"/v1/runs/{run_id}/guards/no_signal/acknowledge")
    assert again.json()["acknowledged_by"] == "key:bootstrap slack:U0BEN"
    missing = await client.post(f"/v1/runs/{run_id}/guards/idle_gpus/acknowledge")
    assert (missing.status_code, missing.json()["code"]) == (404, "guard_trip_not_found")


async def test_a_channel_watches_a_run_that_was_submitted_elsewhere(
    anna: Person, client: httpx.AsyncClient, slack: FakeSlack, worker: Worker, trainer: Story
) -> None:
    run_id = await submit(client, "quiet")
    await anna.link()
    assert (await anna.say("watch quiet"))["response_type"] == "in_channel"
    assert "watches *quiet* already" in (await anna.say("watch quiet"))["text"]
    trainer.launch(run_id)
    trainer.push(run_id, trainer.started(run_id))
    worker.tick()
    worker.tick()
    ts = live_ts(slack, "quiet")
    assert replies(slack, ts) == ["Run quiet started (3 steps)"]


async def test_a_channel_hears_nothing_more_once_its_watcher_has_lost_the_key(
    anna: Person,
    client: httpx.AsyncClient,
    slack: FakeSlack,
    worker: Worker,
    trainer: Story,
) -> None:
    """Somebody who leaves a project takes no live view of its runs along."""
    run_id = await submit(client, "quiet")
    new = {"name": "leaver", "scopes": ["runs:read", "runs:write"]}
    key = (await client.post("/v1/keys", json=new)).json()
    await anna.link(key["secret"])
    await anna.say("watch quiet")
    trainer.launch(run_id)
    trainer.push(run_id, trainer.started(run_id))
    worker.tick()
    worker.tick()
    ts = live_ts(slack, "quiet")
    heard = slack.shown[ts]["blocks"], replies(slack, ts), len(slack.updates)
    assert len(heard[1]) == 1
    assert (await client.delete(f"/v1/keys/{key['id']}")).is_success
    trainer.push(run_id, trainer.evaluation(run_id, 0, {"booking": 0.2}))
    for _ in range(3):
        worker.tick()
    assert (slack.shown[ts]["blocks"], replies(slack, ts), len(slack.updates)) == heard


async def test_a_channel_that_the_app_may_not_post_to_holds_no_message_back(
    anna: Person,
    client: httpx.AsyncClient,
    slack: FakeSlack,
    worker: Worker,
    trainer: Story,
    database: Database,
) -> None:
    run_id = await submit(client, "quiet")
    await anna.link()
    await anna.say("watch quiet")
    refusal = Failure(error="not_in_channel")
    slack.failures.append(refusal)
    worker.tick()
    trainer.launch(run_id)
    trainer.push(run_id, trainer.started(run_id))
    slack.failures.append(refusal)
    worker.tick()
    with database.transaction() as session:
        assert session.scalars(select(OutboxMessage.state)).all() == ["dead"]
    trainer.push(run_id, trainer.evaluation(run_id, 0, {"booking": 0.2}))
    worker.tick()  # somebody has invited the app meanwhile
    assert len(replies(slack, live_ts(slack, "quiet"))) == 1


async def test_a_request_that_a_killed_process_left_is_carried_out_once(
    anna: Person,
    client: httpx.AsyncClient,
    slack: FakeSlack,
    database: Database,
    app: FastAPI,
) -> None:
    await submit(client, "base")
    await anna.link()
    await anna.say("fork base name=copy")
    # As if the process had stopped between the fork and the note that it was done.
    with database.transaction() as session:
        newest = session.scalars(select(SlackRequest).order_by(SlackRequest.id.desc())).first()
        assert newest is not None
        session.execute(
            update(SlackRequest)
            .where(SlackRequest.id == newest.id)
            .values(state="received", reply=None, lease_until=utc_now() - timedelta(seconds=1))
        )
    assert process_due(app.state.services) == 1
    names = [each["name"] for each in (await client.get("/v1/runs")).json()["data"]]
    assert sorted(names) == ["base", "copy"]
    assert slack.whispers[-1]["text"].startswith("*copy* forked from base")


def test_slack_is_answered_at_once_even_when_it_hangs_itself(
    story_url: str, story: Story, tmp_path: object
) -> None:
    with run_fake_slack() as slack:
        more = {
            "slack_signing_secret": SIGNING_SECRET,
            "slack_bot_token": TOKEN,
            "slack_api_base_url": slack.base_url,
        }
        with serve(story_url, story.database, str(tmp_path), **more) as served:
            slack.failures.append(Failure(hang=True))
            with served.browser() as browser:
                request = sign(command("help", slack=slack))
                begin = time.monotonic()
                answer = browser.post(COMMANDS, content=request.body, headers=request.headers)
                took_s = time.monotonic() - begin
            assert answer.status_code == 200
            assert took_s < 1.0
            slack.released.set()
