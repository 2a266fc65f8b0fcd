"""Slack's Web API over real HTTP, against the fake one."""

from __future__ import annotations

import httpx
import pytest

from api.notices.errors import RateLimited, SlackRefused, SlackUnavailable
from api.notices.slack.blocks import Message
from api.notices.slack.web_api import SlackApi
from tests.fixtures.fake_slack import TOKEN, Failure, FakeSlack

HELLO = Message(text="hello", blocks=({"type": "divider"},))


def api(fake: FakeSlack, token: str = TOKEN, timeout_s: float = 5.0) -> SlackApi:
    return SlackApi(token=token, base_url=fake.base_url, timeout_s=timeout_s)


def test_a_post_carries_text_blocks_channel_and_thread(fake_slack: FakeSlack) -> None:
    posted = api(fake_slack).post("#training", HELLO, thread_ts="17.1")
    assert (posted.channel, posted.ts) == ("C0FAKE", "1700000000.000001")
    (body,) = fake_slack.posts
    assert body["channel"] == "#training"
    assert body["thread_ts"] == "17.1"
    assert body["text"] == "hello"
    assert body["blocks"] == [{"type": "divider"}]


def test_a_wrong_token_is_final(fake_slack: FakeSlack) -> None:
    with pytest.raises(SlackRefused, match="invalid_auth"):
        api(fake_slack, token="xoxb-wrong").post("#t", HELLO, thread_ts=None)


def test_an_unknown_channel_is_final(fake_slack: FakeSlack) -> None:
    fake_slack.failures.append(Failure(error="channel_not_found"))
    with pytest.raises(SlackRefused, match="channel_not_found"):
        api(fake_slack).post("#t", HELLO, thread_ts=None)


@pytest.mark.parametrize("header", ["7", "soon", None])
def test_a_429_says_how_long_to_wait(fake_slack: FakeSlack, header: str | None) -> None:
    fake_slack.failures.append(Failure(status=429, retry_after=header))
    with pytest.raises(RateLimited) as raised:
        api(fake_slack).post("#t", HELLO, thread_ts=None)
    assert raised.value.retry_after_s == (7.0 if header == "7" else 30.0)


@pytest.mark.parametrize("failure", [Failure(status=500), Failure(error="internal_error")])
def test_faults_of_slack_are_worth_another_try(fake_slack: FakeSlack, failure: Failure) -> None:
    fake_slack.failures.append(failure)
    with pytest.raises(SlackUnavailable):
        api(fake_slack).post("#t", HELLO, thread_ts=None)


def test_silence_is_worth_another_try(fake_slack: FakeSlack) -> None:
    fake_slack.failures.append(Failure(hang=True))
    with pytest.raises(SlackUnavailable, match="Timeout"):
        api(fake_slack, timeout_s=0.05).post("#t", HELLO, thread_ts=None)


def test_a_closed_port_is_worth_another_try() -> None:
    with pytest.raises(SlackUnavailable):
        SlackApi(token=TOKEN, base_url="http://127.0.0.1:1").post("#t", HELLO, thread_ts=None)


def test_a_reply_goes_to_slacks_own_address_alone(fake_slack: FakeSlack) -> None:
    with pytest.raises(SlackRefused, match="no address of Slack"):
        api(fake_slack).respond("https://hooks.slack.com.evil.example/x", {"text": "hello"})
    assert fake_slack.posts == []


def test_a_redirect_is_no_success(fake_slack: FakeSlack) -> None:
    fake_slack.failures.append(Failure(status=302))
    with pytest.raises(SlackUnavailable, match="HTTP 302"):
        api(fake_slack).post("#t", HELLO, thread_ts=None)


def test_a_limit_in_the_body_is_one_too(fake_slack: FakeSlack) -> None:
    fake_slack.failures.append(Failure(error="ratelimited"))
    with pytest.raises(RateLimited):
        api(fake_slack).post("#t", HELLO, thread_ts=None)


@pytest.mark.parametrize("body", [b"<html>", b"[]"])
def test_a_response_that_is_no_object_is_worth_another_try(
    fake_slack: FakeSlack, body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(_self: SlackApi, _url: str, _body: object, **_options: object) -> httpx.Response:
        return httpx.Response(200, content=body)

    monkeypatch.setattr(SlackApi, "_send", send)
    with pytest.raises(SlackUnavailable, match="is not"):
        api(fake_slack).post("#t", HELLO, thread_ts=None)
