"""`slack link`, `links`, `unlink` and `messages` against the real application."""

from __future__ import annotations

import re
from datetime import timedelta

from api.notices.deliver import Delivery, deliver_due
from api.notices.slack.links import SlackUser, redeem_link_code
from api.runs.journal import utc_now
from tests.api.fixtures.story import Story, spec
from tests.hillclimb.cli.conftest import Invoke, from_json

ANNA = SlackUser(team_id="T0FAKE", user_id="U0ANNA")


def test_a_printed_code_links_a_user_until_they_are_unlinked(hc: Invoke, story: Story) -> None:
    printed = hc("slack", "link")
    assert printed.exit_code == 0, printed.output
    code = re.search(r"/hillclimb link (\w{12})\n", printed.stdout)
    assert code is not None
    with story.database.transaction() as session:
        redeem_link_code(session, code[1], ANNA, now=utc_now())
    (link,) = from_json(hc("slack", "links", "--json"))["data"]
    assert (link["team_id"], link["user_id"]) == ("T0FAKE", "U0ANNA")
    assert "U0ANNA" in hc("slack", "links").stdout
    ended = hc("slack", "unlink", "T0FAKE", "U0ANNA")
    assert "U0ANNA of T0FAKE is no longer linked" in ended.stdout
    again = hc("slack", "unlink", "T0FAKE", "U0ANNA")
    assert again.exit_code == 7


def test_messages_of_a_run_say_why_they_were_not_delivered(hc: Invoke, story: Story) -> None:
    run_id = story.running(spec(channel="#training"))
    waiting = from_json(hc("slack", "messages", run_id, "--json"))["data"]
    assert [(each["about"], each["state"]) for each in waiting] == [
        ("started", "pending"),
        ("opened", "pending"),
    ]
    without_token = Delivery(
        database=story.database,
        slack=None,
        public_url="http://127.0.0.1:8000/",
        clock=lambda: utc_now() + timedelta(minutes=1),
    )
    deliver_due(without_token)
    (newest, oldest) = from_json(hc("slack", "messages", run_id, "--json"))["data"]
    assert newest["state"] == oldest["state"] == "skipped"
    assert newest["error"] == "the service has no Slack bot token"
    assert (newest["channel"], newest["next_attempt_at"]) == ("#training", None)
    page = hc("slack", "messages", run_id, "--limit", "1").stdout
    assert f"more: hillclimb slack messages {run_id} --before {newest['id']}" in page
    silent = story.running()
    assert "notify.slack.channel" in hc("slack", "messages", silent).stdout
