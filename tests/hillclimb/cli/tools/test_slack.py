"""`slack link`, `links` and `unlink` against the real application."""

from __future__ import annotations

import re

from api.notices.slack.links import SlackUser, redeem_link_code
from api.runs.journal import utc_now
from tests.api.fixtures.story import Story
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
