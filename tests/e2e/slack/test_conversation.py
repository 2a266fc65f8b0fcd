"""The conversation of the issue: plan, confirm, watch, fork, approve, cancel, with killed bots."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import func, select

from api.clusters import store as clusters
from api.runs import store
from api.runs.journal import utc_now
from api.scheduling import attempts
from api.tables import BudgetExtension, Run, SlackRequest
from api.tables.access.identity import DEFAULT_PROJECT
from hillclimb.protocol.end_reasons import ReasonCode
from tests.api.fixtures import story as stories
from tests.api.fixtures.story import Story
from tests.api.http.slack.conftest import buttons
from tests.e2e.slack.service import SlackService, running_service
from tests.fixtures.factories import spec_body
from tests.fixtures.fake_slack import (
    Failure,
    FakeSlack,
    click,
    command,
    run_fake_slack,
    sign,
    submission,
)
from tests.fixtures.fake_socket import FakeSocket, as_payload, run_fake_socket
from tests.fixtures.migrated import migrate

pytestmark = pytest.mark.long

RENTED = {
    "backend": {
        "type": "skypilot",
        "skypilot": {
            "candidates": [{"infra": "lambda", "accelerators": "H100:8"}],
            "max_hours": 10,
        },
    },
    "experimental": True,
    "budget": {"usd": 40.0},
}


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with run_fake_slack() as fake:
        yield fake


@pytest.fixture
def service(
    slack: FakeSlack,
    make_database: Callable[..., str],
    redis_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[SlackService]:
    url = make_database()
    migrate(url)
    with (
        run_fake_socket(slack) as socket,
        running_service(url, redis_url, tmp_path, slack, socket, monkeypatch) as running,
    ):
        yield running


@pytest.fixture
def trainer(service: SlackService, monkeypatch: pytest.MonkeyPatch) -> Story:
    """Runs what the default project submits."""
    monkeypatch.setattr(stories, "PROJECT", DEFAULT_PROJECT)
    return Story(service.database, now=utc_now())


@dataclass(frozen=True)
class Member:
    """A person in Slack, whose requests arrive over Socket Mode."""

    service: SlackService
    user: str

    @property
    def socket(self) -> FakeSocket:
        return self.service.socket

    def send(self, text: str) -> None:
        body = command(text, slack=self.service.slack, user=self.user)
        self.socket.deliver("slash_commands", as_payload(body), deadline_s=90.0)

    def say(self, text: str) -> dict[str, Any]:
        """Send `/hillclimb TEXT` and return the reply."""
        before = len(self.service.slack.whispers)
        self.send(text)
        self.service.until(lambda: len(self.service.slack.whispers) > before)
        return self.service.slack.whispers[before]

    def press(self, action: str, value: str, *, ts: str) -> None:
        body = click(action, value, slack=self.service.slack, ts=ts, user=self.user)
        self.socket.deliver("interactive", as_payload(body), deadline_s=90.0)

    def press_twice(self, action: str, value: str, *, ts: str) -> None:
        """Press a button twice at the same time."""
        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(self.press, action, value, ts=ts) for _ in range(2)]:
                done.result()

    def fill_in(self, values: dict[str, str]) -> dict[str, Any]:
        view = self.service.slack.views[-1]
        body = submission(view, values, view_id="V1", user=self.user)
        return self.socket.deliver("interactive", as_payload(body), deadline_s=90.0)

    def link(self, client: httpx.Client) -> None:
        code = client.post("/v1/slack/link-codes").json()["code"]
        assert self.say(f"link {code}")["text"].startswith("Linked: ")


def names(client: httpx.Client) -> dict[str, str]:
    page = client.get("/v1/runs").raise_for_status().json()["data"]
    assert len(page) == len({each["name"] for each in page}), "a run was doubled"
    return {each["name"]: each["id"] for each in page}


def live_ts(slack: FakeSlack, name: str) -> str | None:
    """The ts of the run's live message; there is at most one."""
    found = [
        ts
        for ts, body in list(slack.shown.items())
        if "thread_ts" not in body and _headline(body).startswith(f"{name}:")
    ]
    assert len(found) <= 1, "a live message was doubled"
    return found[0] if found else None


def _headline(message: dict[str, Any]) -> str:
    return str(message["blocks"][0].get("text", {}).get("text", ""))


def replies(slack: FakeSlack, ts: str) -> list[str]:
    return [post["text"] for post in list(slack.posts) if post.get("thread_ts") == ts]


def test_the_conversation_with_bots_that_are_killed_on_the_way(
    service: SlackService, slack: FakeSlack, trainer: Story
) -> None:
    anna, ben = Member(service, "U0ANNA"), Member(service, "U0BEN")
    with service.client() as client:
        answer = client.post("/v1/runs", json=spec_body(name="base", notify={"slack": None}))
        assert answer.status_code == 201, answer.text
        anna.link(client)
        ben.link(client)
        run_id = plan_and_confirm(service, anna, client)
        ts = train(service, run_id, trainer)
        fork(service, anna, client, ts=ts)
        approve(service, anna, ben, client)
        cancel(service, anna, run_id, trainer, ts=ts)
        assert sorted(names(client)) == ["base", "first", "rich", "rich-base", "second"]
    nothing_is_left(service)
    texts = replies(slack, ts)
    assert len(texts) == len(set(texts)), texts
    assert service.socket.slowest_s < 3.0
    assert slack.num_impatient == 0


def plan_and_confirm(service: SlackService, anna: Member, client: httpx.Client) -> str:
    """Plan; a bot is killed while it answers the double click, the next one answers."""
    slack = service.slack
    planned = anna.say("plan base name=first schedule.total_steps=40")
    assert buttons(planned) == {}
    assert sorted(names(client)) == ["base"]
    plan = anna.say("run base name=first schedule.total_steps=40")
    service.until(lambda: num_waiting(service) == 0)
    slack.failures.append(Failure(hang=True, is_lost=True))
    before, calls = len(slack.whispers), slack.calls
    anna.press_twice("plan.confirm", buttons(plan)["plan.confirm"], ts="1.1")
    service.until(lambda: not slack.failures and slack.calls > calls)
    service.kill_bot()
    assert sorted(names(client)) == ["base", "first"]
    service.start_bot()
    service.until(lambda: len(slack.whispers) > before)
    (reply,) = slack.whispers[before:]
    assert reply["replace_original"] is True
    assert "submitted" in reply["text"]
    return names(client)["first"]


def train(service: SlackService, run_id: str, trainer: Story) -> str:
    """Train to step 10 under a rate limit, and return the ts of the live message."""
    slack = service.slack
    service.until(lambda: live_ts(slack, "first") is not None)
    ts = str(live_ts(slack, "first"))
    assert "queued" in _headline(slack.shown[ts])
    trainer.launch(run_id)
    trainer.push(run_id, trainer.started(run_id), trainer.evaluation(run_id, 0, {"booking": 0.2}))
    service.until(lambda: len(replies(slack, ts)) == 2)
    slack.failures.append(Failure(status=429, retry_after="2"))
    trainer.push(run_id, trainer.step(run_id, 10, {"booking": 0.5}))
    trainer.push(run_id, trainer.evaluation(run_id, 10, {"booking": 0.6}))
    trainer.push(run_id, trainer.checkpoint(run_id, 10))
    service.until(lambda: "*20.0 % → 60.0 %*" in str(slack.shown[ts]["blocks"]))
    service.until(lambda: len(replies(slack, ts)) == 3)
    assert "+40.0" in str(slack.posts[-1]["blocks"])
    return ts


def fork(service: SlackService, anna: Member, client: httpx.Client, *, ts: str) -> None:
    """Fork by the form, sent while no bot is there, and twice."""
    slack = service.slack
    anna.press("run.fork", buttons(slack.shown[ts])["run.fork"], ts=ts)
    service.until(lambda: len(slack.views) == 1)
    wrong = anna.fill_in({"changes": "optimizer.lr", "step": "ten", "name": ""})
    assert set(wrong["payload"]["errors"]) == {"changes", "step"}
    service.until(lambda: num_waiting(service) == 0)
    service.kill_bot()
    values = {"changes": "optimizer.lr=1e-5", "step": "10", "name": "second"}
    with ThreadPoolExecutor(1) as pool:
        sent = pool.submit(anna.fill_in, values)
        service.start_bot()
        assert "payload" not in sent.result()
    anna.fill_in(values)
    service.until(lambda: "second" in names(client))
    forked = client.get(f"/v1/runs/{names(client)['second']}").json()
    assert forked["spec"]["lineage"]["forked_from"]["step"] == 10
    assert forked["created_by"] == "key:bootstrap slack:U0ANNA"
    service.until(lambda: replies(slack, ts)[-1].startswith("*second* forked from first"))


def approve(service: SlackService, anna: Member, ben: Member, client: httpx.Client) -> None:
    """Approve more budget for a run whose cluster has cost 80 % of it; several press."""
    slack = service.slack
    body = spec_body(name="rich-base", notify={"slack": None}, **RENTED)
    assert client.post("/v1/runs", json=body).status_code == 201
    plan = anna.say("run rich-base name=rich")
    anna.press("plan.confirm", buttons(plan)["plan.confirm"], ts="2.2")
    service.until(lambda: "rich" in names(client))
    rent(service, names(client)["rich"], usd=33.0)
    service.until(lambda: any("budget.approve" in buttons(each) for each in list(slack.posts)))
    (warning,) = [each for each in slack.posts if "budget.approve" in buttons(each)]
    value = buttons(warning)["budget.approve"]
    warned_ts = next(ts for ts, each in slack.shown.items() if each is warning)
    anna.press_twice("budget.approve", value, ts=warned_ts)
    ben.press("budget.approve", value, ts=warned_ts)
    service.until(lambda: any("extended the budget" in each["text"] for each in list(slack.posts)))
    service.until(lambda: num_waiting(service) == 0)
    with service.database.transaction() as session:
        (extension,) = session.scalars(select(BudgetExtension))
        assert extension.usd == 10.0
    assert len([each for each in slack.posts if "extended the budget" in each["text"]]) == 1


def rent(service: SlackService, run_id: str, *, usd: float) -> None:
    """Write the rows of a cluster that has cost so much, as the worker would have."""
    had_at = utc_now() - timedelta(hours=1)
    with service.database.transaction() as session:
        attempt = attempts.schedule(session, store.lock_run(session, run_id), now=had_at)
        assert attempt is not None
        cluster = clusters.of_attempt(session, attempt.id)
        assert cluster is not None
        cluster.state, cluster.infra, cluster.sku = "running", "lambda", "gpu_8x_h100_sxm5"
        cluster.hourly_usd = usd
        cluster.billed_from = cluster.running_at = had_at
        cluster.wall_limit_at = had_at + timedelta(hours=24)


def cancel(service: SlackService, anna: Member, run_id: str, trainer: Story, *, ts: str) -> None:
    """Cancel by a double click; a bot is killed that has acknowledged it and cannot act yet.

    Left alone, it may have replied before it is killed; then the next bot replies again.
    """
    slack = service.slack
    with service.database.transaction() as session:
        store.lock_run(session, run_id)
        anna.press_twice("run.cancel", buttons(slack.shown[ts])["run.cancel"], ts=ts)
        service.kill_bot()
    service.start_bot()
    service.until(lambda: replies(slack, ts)[-1] == "*first* is cancelling (<@U0ANNA>).")
    trainer.finish(run_id, 10, ReasonCode.CANCELLED_BY_USER)
    service.until(lambda: "first: cancelled" in _headline(slack.shown[ts]))
    service.until(lambda: replies(slack, ts)[-1] == "Run first cancelled: cancelled_by_user")
    end = str(slack.posts[-1]["blocks"])
    for fact in ("checkpoint of step 10 is kept", "no machines were rented", "cost: $0.00"):
        assert fact in end


def num_waiting(service: SlackService) -> int:
    with service.database.transaction() as session:
        waits = SlackRequest.state.in_(("received", "answered"))
        return session.scalar(select(func.count()).where(waits)) or 0


def nothing_is_left(service: SlackService) -> None:
    service.until(lambda: num_waiting(service) == 0)
    with service.database.transaction() as session:
        assert session.scalars(select(SlackRequest.state).distinct()).all() == ["done"]


def test_the_signed_routes_refuse_what_slack_did_not_sign_just_now(
    service: SlackService, slack: FakeSlack
) -> None:
    def post(request: Any, body: bytes | None = None) -> httpx.Response:
        url = f"{service.url}/v1/slack/commands"
        content = request.body if body is None else body
        return httpx.post(url, content=content, headers=request.headers, trust_env=False)

    body = command("help", slack=slack)
    forged = post(sign(body, secret="another"))
    changed = post(sign(body), body + b"&x=1")
    stale = post(sign(body, at=time.time() - 301.0))
    assert [each.status_code for each in (forged, changed, stale)] == [401, 401, 401]
    assert slack.whispers == []
    genuine = sign(body)
    assert post(genuine).status_code == 200
    replayed = post(genuine)
    assert (replayed.status_code, replayed.json()["code"]) == (401, "request_forged")
    # The same command over Socket Mode, as while the app is switched to it.
    service.socket.deliver("slash_commands", as_payload(body))
    service.until(lambda: len(slack.whispers) == 1 and num_waiting(service) == 0)
    with service.database.transaction() as session:
        assert session.scalar(select(func.count(Run.id))) == 0
    assert len(slack.whispers) == 1
