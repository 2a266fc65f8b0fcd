"""The outbox, from the event to the fake Slack."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import select

from api.notices.deliver import BUDGET_S, MAX_ATTEMPTS, Delivery, deliver_due
from api.notices.slack.web_api import SlackApi
from api.runs.deadlines import OUTBOX_LEASE_S
from api.runs.journal import utc_now
from api.runs.outbox import claim_next, find_claimed
from api.tables import OutboxMessage, Run, RunEvent
from hillclimb.protocol.end_reasons import ReasonCode
from hillclimb.protocol.events import CheckpointRefused
from hillclimb.spec.run import RunSpec
from tests.api.fixtures.story import Story, spec
from tests.api.fixtures.three_samples import evaluate
from tests.fixtures.fake_slack import TOKEN, Failure, FakeSlack

CHANNEL = "#training"
RATES = {"booking": 0.2, "github": 0.95, "outlook": 0.0}


class Clock:
    def __init__(self) -> None:
        self.now = utc_now() + timedelta(minutes=1)

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def delivery(story: Story, fake_slack: FakeSlack, clock: Clock) -> Delivery:
    slack = SlackApi(token=TOKEN, base_url=fake_slack.base_url, timeout_s=0.5)
    return Delivery(
        database=story.database, slack=slack, public_url="http://127.0.0.1:8000/", clock=clock
    )


def told_run(story: Story) -> str:
    run_id = story.running(spec(channel=CHANNEL))
    story.push(run_id, story.evaluation(run_id, 0, RATES))
    story.push(run_id, story.evaluation(run_id, 40, {**RATES, "booking": 0.9}))
    story.finish(run_id, 40)
    return run_id


def states(story: Story) -> list[tuple[str, str, int]]:
    query = select(OutboxMessage).order_by(OutboxMessage.id)
    with story.database.transaction() as session:
        return [(m.kind, m.state, m.num_attempts) for m in session.scalars(query)]


def warnings(story: Story, run_id: str) -> list[str]:
    query = select(RunEvent.data).where(RunEvent.run_id == run_id, RunEvent.type == "run.warning")
    with story.database.transaction() as session:
        return [data["code"] for data in session.scalars(query)]


def test_start_evals_and_end_are_told_in_one_thread_and_in_order(
    story: Story, delivery: Delivery, fake_slack: FakeSlack
) -> None:
    run_id = told_run(story)
    assert deliver_due(delivery) == 5
    live, *texts = [post["text"] for post in fake_slack.posts]
    assert live.startswith("climb: succeeded, step ")
    assert texts[0] == "Run climb started (40 steps)"
    assert "eval at step 0" in texts[1]
    assert "eval at step 40" in texts[2]
    assert texts[3] == "Run climb succeeded: completed"
    assert "thread_ts" not in fake_slack.posts[0]
    assert {post["thread_ts"] for post in fake_slack.posts[1:]} == {"1700000000.000001"}
    assert f"http://127.0.0.1:8000/runs/{run_id}" in str(fake_slack.posts[4]["blocks"])
    assert "IMPROVED" in str(fake_slack.posts[4]["blocks"])
    assert deliver_due(delivery) == 0


def test_a_refused_checkpoint_is_a_message_with_the_reason(
    story: Story, delivery: Delivery, fake_slack: FakeSlack
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    saved = story.checkpoint(run_id, 10)
    story.push(run_id, saved)
    place = story.place(run_id, 10)
    reason = "not_loaded: policy/ has no tokenizer.json"
    story.push(run_id, CheckpointRefused(**place, path=saved.path, reason=reason))
    assert deliver_due(delivery) == 3
    blocks = str(fake_slack.posts[2]["blocks"])
    assert "the checkpoint of step 10 is refused (not_loaded: policy/ has no token" in blocks
    assert "the run resumes from an earlier one" in blocks


def test_a_guard_that_tripped_is_a_message_with_its_evidence_and_effect(
    story: Story, delivery: Delivery, fake_slack: FakeSlack
) -> None:
    guards = {"no_signal": {"steps": 1, "policy": "pause"}}
    body = spec(channel=CHANNEL).model_dump(mode="json") | {"guards": guards}
    run_id = story.running(RunSpec.model_validate(body))
    story.push(run_id, story.step(run_id, 1, {"booking": 1.0}))
    assert deliver_due(delivery) == 3
    post = fake_slack.posts[2]
    assert post["text"].startswith("climb: guard no_signal: 1 steps in a row")
    blocks = str(post["blocks"])
    assert "step 1: guard `no_signal` tripped. The run pauses." in blocks
    assert "without a group whose scores differ" in blocks
    assert f"hillclimb guards {run_id}" in blocks


def test_slow_deliveries_leave_the_rest_to_the_next_call(
    story: Story, delivery: Delivery, clock: Clock
) -> None:
    told_run(story)

    def slow() -> datetime:
        clock.now += timedelta(seconds=BUDGET_S / 4)
        return clock.now

    hurried = replace(delivery, clock=slow)
    first = deliver_due(hurried)
    assert 0 < first < 5
    assert first + deliver_due(delivery) == 5


def test_a_run_without_a_channel_tells_nobody(story: Story, delivery: Delivery) -> None:
    run_id = story.running()
    story.finish(run_id, 40)
    assert deliver_due(delivery) == 0
    assert states(story) == []


def test_a_run_that_never_started_still_tells_its_end(
    story: Story, delivery: Delivery, fake_slack: FakeSlack
) -> None:
    run_id = story.submit(spec(channel=CHANNEL))
    story.launch(run_id)
    story.report(run_id, ReasonCode.SPEC_REJECTED, message="no such model")
    assert deliver_due(delivery) == 2
    assert "spec_rejected" in fake_slack.posts[1]["text"]


def test_a_failing_slack_is_tried_later_and_later_and_holds_back_the_rest_of_the_run(
    story: Story, delivery: Delivery, fake_slack: FakeSlack, clock: Clock
) -> None:
    told_run(story)
    fake_slack.failures.extend([Failure(status=500)] * 3)
    waits = []
    for _ in range(3):
        assert deliver_due(delivery) == 0
        with story.database.transaction() as session:
            first = session.scalars(select(OutboxMessage).order_by(OutboxMessage.id)).first()
            assert first is not None
            waits.append((first.next_attempt_at - clock.now).total_seconds())
            clock.now = first.next_attempt_at
    assert fake_slack.calls == 3
    assert waits[0] < waits[1] < waits[2]
    assert deliver_due(delivery) == 5
    assert fake_slack.posts[1]["text"].startswith("Run climb started")


def test_a_rate_limit_is_waited_out_and_not_counted(
    story: Story, delivery: Delivery, fake_slack: FakeSlack, clock: Clock
) -> None:
    story.running(spec(channel=CHANNEL))
    fake_slack.failures.append(Failure(status=429, retry_after="120"))
    assert deliver_due(delivery) == 0
    clock.now += timedelta(seconds=119)
    assert deliver_due(delivery) == 0
    assert fake_slack.calls == 1
    clock.now += timedelta(seconds=1)
    assert deliver_due(delivery) == 2
    assert states(story) == [("opened", "delivered", 1), ("started", "delivered", 1)]


def test_a_message_is_given_up_after_the_last_try_with_one_warning_for_the_run(
    story: Story, delivery: Delivery, fake_slack: FakeSlack, clock: Clock
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    assert deliver_due(delivery, limit=1) == 1
    fake_slack.failures.extend([Failure(status=503)] * MAX_ATTEMPTS)
    for _ in range(MAX_ATTEMPTS):
        deliver_due(delivery)
        clock.now += timedelta(hours=1)
    assert states(story)[1:] == [("started", "dead", MAX_ATTEMPTS)]
    fake_slack.failures.append(Failure(error="is_archived"))
    story.push(run_id, story.evaluation(run_id, 0, RATES))
    deliver_due(delivery)
    assert [state for _, state, _ in states(story)] == ["delivered", "dead", "dead"]
    assert warnings(story, run_id) == ["slack_dead"]


def test_without_a_token_messages_are_skipped_with_a_warning_and_the_run_goes_on(
    story: Story, delivery: Delivery
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    silent = Delivery(
        database=story.database, slack=None, public_url="http://x", clock=delivery.clock
    )
    assert deliver_due(silent) == 0
    assert states(story) == [("opened", "skipped", 1), ("started", "skipped", 1)]
    assert warnings(story, run_id) == ["slack_skipped"]
    story.push(run_id, story.evaluation(run_id, 0, RATES))
    assert deliver_due(silent) == 0
    assert warnings(story, run_id) == ["slack_skipped"]
    with story.database.transaction() as session:
        assert session.get_one(Run, run_id).status == "running"


def test_nothing_is_added_behind_the_end_of_a_run(story: Story, delivery: Delivery) -> None:
    run_id = told_run(story)
    silent = Delivery(
        database=story.database, slack=None, public_url="http://x", clock=delivery.clock
    )
    deliver_due(silent)
    assert {state for _, state, _ in states(story)} == {"skipped"}
    assert warnings(story, run_id) == []


def test_two_deliverers_never_hold_the_same_message_and_a_dead_ones_lease_ends(
    story: Story, clock: Clock
) -> None:
    story.running(spec(channel=CHANNEL))
    with story.database.transaction() as session:
        first = claim_next(session, owner="one", now=clock.now)
    with story.database.transaction() as session:
        assert claim_next(session, owner="two", now=clock.now) is None
    clock.now += timedelta(seconds=OUTBOX_LEASE_S + 1)
    with story.database.transaction() as session:
        second = claim_next(session, owner="two", now=clock.now)
    assert first is not None
    assert second is not None
    assert second.id == first.id
    with story.database.transaction() as session:
        assert find_claimed(session, first) is None
        assert find_claimed(session, second) is not None


def test_an_answer_that_never_came_is_asked_for_again_and_may_post_twice(
    story: Story, delivery: Delivery, fake_slack: FakeSlack, clock: Clock
) -> None:
    story.running(spec(channel=CHANNEL))
    fake_slack.failures.append(Failure(hang=True))
    assert deliver_due(delivery) == 0
    clock.now += timedelta(minutes=1)
    assert deliver_due(delivery) == 2
    assert len(fake_slack.posts) == 3


def test_an_eval_repeated_by_a_later_attempt_is_told_once(
    story: Story, delivery: Delivery, fake_slack: FakeSlack
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    story.push(run_id, story.evaluation(run_id, 0, RATES))
    story.report(run_id, ReasonCode.TRAINER_CRASHED)
    story.launch(run_id)
    story.push(run_id, story.started(run_id), story.evaluation(run_id, 0, RATES))
    assert deliver_due(delivery) == 3
    assert len(fake_slack.posts) == 3


def test_an_evaluation_of_three_samples_is_told_with_pass_at_3_and_breakdowns(
    story: Story, delivery: Delivery, fake_slack: FakeSlack
) -> None:
    run_id = story.running(spec(channel=CHANNEL))
    evaluate(story, run_id, 0, 0)
    evaluate(story, run_id, 40, 1)
    story.finish(run_id, 40)
    deliver_due(delivery)
    last, end = (str(post["blocks"]) for post in fake_slack.posts[-2:])
    assert "pass@3 100.0 %" in last
    assert "by difficulty" in last
    assert "computer_use" in last
    assert "pass@3 50.0 % → 100.0 %" in end
