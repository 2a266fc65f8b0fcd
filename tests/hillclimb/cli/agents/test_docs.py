"""`hillclimb docs` and the tool `docs` print what the service serves."""

from __future__ import annotations

from tests.hillclimb.cli.agents.conftest import Open
from tests.hillclimb.cli.conftest import Invoke, from_json


def test_a_page_is_the_same_by_command_and_by_tool(hc: Invoke, open_session: Open) -> None:
    session = open_session(0)
    listed = hc("docs").stdout
    assert listed == session.call("docs") + "\n"
    assert "/docs/agents/SKILL.md" in listed
    page = from_json(hc("docs", "agents/SKILL", "--json"))["text"]
    assert page == session.call("docs", page="agents/SKILL")
    assert page.startswith("---\nname: hillclimb\n")
    assert hc("docs", "no-such-page").exit_code == 7
