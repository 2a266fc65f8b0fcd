"""The live message of a run: posted once, kept current, and whole after a restart."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import select

from api.notices.deliver import Delivery, deliver_due
from api.notices.refresh import MIN_UPDATE_S, refresh_due
from api.notices.slack.web_api import SlackApi
from api.tables import SlackThread
from hillclimb.blobs.disk import DiskStore
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.rundir import log_segment, run_key
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.story_fixtures import blobs
from tests.api.notices.test_deliver import CHANNEL, RATES, Clock
from tests.fixtures.fake_slack import TOKEN, Failure, FakeSlack

__all__ = ["blobs"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def delivery(story: Story, fake_slack: FakeSlack, clock: Clock, blobs: DiskStore) -> Delivery:
    slack = SlackApi(token=TOKEN, base_url=fake_slack.base_url, timeout_s=2.0)
    return Delivery(
        database=story.database, slack=slack, public_url="http://h", store=blobs, clock=clock
    )


def shown(fake_slack: FakeSlack) -> str:
    """The live message as the channel sees it."""
    return str(fake_slack.shown["1700000000.000001"])


def buttons(message: dict[str, Any]) -> list[str]:
    rows = [each["elements"] for each in message["blocks"] if each["type"] == "actions"]
    return [element["action_id"] for row in rows for element in row]


def test_it_is_there_while_the_run_waits_and_says_who_runs_what_where(
    story: Story, delivery: Delivery, fake_slack: FakeSlack
) -> None:
    story.submit(spec(channel=CHANNEL))
    assert deliver_due(delivery) == 1
    (post,) = fake_slack.posts
    text = str(post["blocks"])
    assert post["text"] == "climb: queued, step 0 of 40"
    for fact in ("own machine", "tool_use", "builtin:tiny-qwen3-a", "booking, github", "key:test"):
        assert fact in text
    assert "grpo, lr 0.00025, batch 20 × 8 rollouts" in text
    assert buttons(post) == ["run.open", "run.logs", "run.fork", "run.pause", "run.cancel"]
    cancel = post["blocks"][-1]["elements"][-1]
    assert cancel["style"] == "danger"
    assert "Cancel *climb*?" in cancel["confirm"]["text"]["text"]


def test_many_events_are_one_update_with_pass_at_1_before_and_now(
    story: Story, delivery: Delivery, fake_slack: FakeSlack, clock: Clock
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    deliver_due(delivery)
    story.push(run_id, story.evaluation(run_id, 0, RATES))
    for step in range(1, 11):
        story.push(run_id, story.step(run_id, step, {"booking": 0.5}))
    story.push(run_id, story.evaluation(run_id, 10, {**RATES, "booking": 0.9}))
    assert refresh_due(delivery) == 1
    assert "█████░░░░░░░░░░░░░░░" in shown(fake_slack)
    assert "step 10 of 40" in shown(fake_slack)
    assert "*pass@1* sampled: *38.3 % → 61.7 %* [" in shown(fake_slack)
    assert refresh_due(delivery) == 0
    story.push(run_id, story.step(run_id, 11, {"booking": 0.5}))
    assert refresh_due(delivery) == 0
    clock.now += timedelta(seconds=MIN_UPDATE_S)
    assert refresh_due(delivery) == 1
    assert len(fake_slack.updates) == 2
    assert len([post for post in fake_slack.posts if "thread_ts" not in post]) == 1


def test_another_process_goes_on_where_the_first_stopped(
    story: Story, delivery: Delivery, fake_slack: FakeSlack, clock: Clock
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    assert deliver_due(delivery, limit=1) == 1
    successor = replace(delivery, rng=random.Random(1))
    assert deliver_due(successor) == 1
    story.finish(run_id, 40)
    clock.now += timedelta(seconds=MIN_UPDATE_S)
    assert refresh_due(successor) == 1
    assert deliver_due(successor) == 1
    texts = [post["text"] for post in fake_slack.posts]
    assert len(texts) == len(set(texts)) == 3
    assert "succeeded" in shown(fake_slack)
    with story.database.transaction() as session:
        thread = session.scalars(select(SlackThread)).one()
        assert thread.next_update_at is None
    assert refresh_due(successor) == 0


def test_a_rate_limit_holds_every_update_back_until_slack_wants_more(
    story: Story, delivery: Delivery, fake_slack: FakeSlack, clock: Clock
) -> None:
    runs = [story.running(spec(f"climb-{n}", channel=CHANNEL)) for n in range(2)]
    deliver_due(delivery)
    for run_id in runs:
        story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))
    calls = fake_slack.calls
    fake_slack.failures.append(Failure(status=429, retry_after="60"))
    assert refresh_due(delivery) == 0
    clock.now += timedelta(seconds=59)
    assert refresh_due(delivery) == 0
    assert fake_slack.calls == calls + 1
    clock.now += timedelta(seconds=2)
    assert refresh_due(delivery) == 2


def test_a_message_that_somebody_deleted_is_left_alone(
    story: Story, delivery: Delivery, fake_slack: FakeSlack, clock: Clock
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    deliver_due(delivery)
    fake_slack.shown.clear()
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))
    assert refresh_due(delivery) == 0
    with story.database.transaction() as session:
        thread = session.scalars(select(SlackThread)).one()
        assert thread.error == "Slack rejected it: message_not_found"
    calls = fake_slack.calls
    clock.now += timedelta(hours=1)
    assert refresh_due(delivery) == 0
    assert fake_slack.calls == calls


def test_an_eval_reply_shows_the_change_of_each_environment(
    story: Story, delivery: Delivery, fake_slack: FakeSlack
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    story.push(run_id, story.evaluation(run_id, 0, RATES))
    story.push(run_id, story.evaluation(run_id, 10, {**RATES, "booking": 0.9}))
    deliver_due(delivery)
    table = fake_slack.posts[-1]["blocks"][1]["text"]["text"]
    (booking,) = [line for line in table.splitlines() if line.startswith("booking")]
    assert "20.0 % →  90.0 %" in booking


def test_the_end_says_what_failed_with_the_last_lines_and_what_is_left(
    story: Story, delivery: Delivery, fake_slack: FakeSlack, blobs: DiskStore
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    for number, part in enumerate((b"first\nsecond\n", b"CUDA <out> of memory\n"), start=1):
        blobs.put(run_key(run_id, log_segment(1, number)), part)
    story.report(run_id, ReasonCode.SPEC_REJECTED, message="no such model")
    deliver_due(delivery)
    end = str(fake_slack.posts[-1]["blocks"])
    assert "no such model" in end
    assert "first\\nsecond\\nCUDA &lt;out&gt; of memory" in end
    assert f"http://h/runs/{run_id}/log" in end
    assert "machines: no machines were rented" in end
    assert "checkpoint: no checkpoint was saved" in end
    assert "cost: $0.00" in end


def test_a_tracked_run_links_to_wandb(
    story: Story, delivery: Delivery, fake_slack: FakeSlack
) -> None:
    wandb = {"mode": "online", "entity": "thefleet", "project": "fleet-task-grpo"}
    more = {"tracking": {"wandb": wandb}, "experimental": True}
    run_spec = RunSpec.model_validate(spec(channel=CHANNEL).model_dump(mode="json") | more)
    run_id = story.running(run_spec)
    story.finish(run_id, 40)
    deliver_due(delivery)
    url = f"https://wandb.ai/thefleet/fleet-task-grpo/runs/{run_id}-attempt-1"
    assert url in str(fake_slack.posts[0]["blocks"])
    assert url in str(fake_slack.posts[-1]["blocks"])
