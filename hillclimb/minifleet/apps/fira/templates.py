"""Fira's requests: tickets planned, started, logged on, finished; first what is in their way."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue

from hillclimb.minifleet.apps.fira.scene import FiraScene, scene
from hillclimb.minifleet.apps.fira.tools import BACKLOG, DOING, DONE, POINTS, TESTING, TODO
from hillclimb.minifleet.framework.changes import Change, inserted, updated
from hillclimb.minifleet.framework.template import FilledTemplate, TaskDraw, Template


def _request(
    *acts: str, target: str = "todo", when: str = "today"
) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests on a ticket as `scene` draws it, or on a `new` one.

    Acts on the ticket: into (the sprint named), roomiest (the sprint with the most room), log,
    start, test, finish.
    Acts before it: unblock (finish what blocks it), make_room (send a ticket of the full sprint
    to the backlog), hand_in (send what the user works on to testing).
    """

    def build(draw: TaskDraw) -> FilledTemplate:
        board = scene(draw, "todo" if target == "new" else target)
        sprint = board.sprints[2] if "make_room" in acts else draw.one(board.sprints[:2])
        others = {"make_room": board.filler, "hand_in": board.busy}
        other = next((str(others[act]["title"]) for act in acts if act in others), "")
        title = board.new_title if target == "new" else str(board.target["title"])
        date = draw.today if when == "today" else draw.earlier()
        goal: dict[str, JsonValue] = {
            "kind": "create" if target == "new" else "find",
            "acts": ",".join(acts),
            "title": title,
            "other": other,
            "sprint": sprint,
            "epic": draw.one(board.epics),
            "points": draw.one(POINTS),
            "hours": draw.number(1, 8),
            "date": date,
        }
        return FilledTemplate(
            user=board.user,
            words={
                "title": title,
                "other": other,
                "sprint": sprint,
                "epic": str(goal["epic"]),
                "points": int(str(goal["points"])),
                "hours": int(str(goal["hours"])),
                "when": "today" if when == "today" else f"on {date}",
            },
            tables=board.tables(draw),
            goal=goal,
            changes=_expected(board, goal, is_new=target == "new"),
        )

    return build


def _my_ticket(draw: TaskDraw) -> FilledTemplate:
    """Build requests that send the one ticket of the user's to testing."""
    board = scene(draw, "todo")
    goal: dict[str, JsonValue] = {
        "kind": "find",
        "acts": "test",
        "title": board.user,
        "other": "",
        "sprint": "",
        "points": 0,
    }
    return FilledTemplate(
        user=board.user,
        words={},
        tables=board.tables(draw),
        goal=goal,
        changes=[updated("tickets", board.busy["id"], status=TESTING)],
    )


_STATUS_AFTER = {"start": DOING, "test": TESTING, "finish": DONE}


def _expected(board: FiraScene, goal: dict[str, JsonValue], *, is_new: bool) -> list[Change]:
    acts = str(goal["acts"]).split(",")
    fields: dict[str, JsonValue] = {}
    reached = [_STATUS_AFTER[act] for act in acts if act in _STATUS_AFTER]
    if reached:
        fields["status"] = reached[-1]
    if "into" in acts or "roomiest" in acts:
        fields["sprint"] = goal["sprint"] if "into" in acts else board.sprints[0]
    before = {
        "unblock": updated("tickets", board.tested["id"], status=DONE),
        "make_room": updated("tickets", board.filler["id"], sprint=BACKLOG),
        "hand_in": updated("tickets", board.busy["id"], status=TESTING),
    }
    changes = [change for act, change in before.items() if act in acts]
    if "log" in acts:
        entry = {"date": goal["date"], "hours": goal["hours"]}
        whose = {"ticket": board.target["id"], "member": board.user}
        changes.append(inserted("worklogs", **whose, **entry))
    if is_new:
        content = {name: goal[name] for name in ("title", "epic", "points")}
        fresh: dict[str, JsonValue] = {"status": TODO, "sprint": BACKLOG, "blocker": "", **fields}
        changes.append(inserted("tickets", **content, owner=board.user, **fresh))
    elif fields:
        changes.append(updated("tickets", board.target["id"], **fields))
    return changes


TEMPLATES: tuple[Template, ...] = (
    Template(
        name="start",
        difficulty=1,
        wordings=(
            'Start the ticket "{title}".',
            'Move the ticket "{title}" to doing.',
            'Work on "{title}" begins: move it to doing.',
        ),
        build=_request("start"),
    ),
    Template(
        name="finish",
        difficulty=1,
        wordings=(
            'Finish the ticket "{title}".',
            'The ticket "{title}" passed its tests: it is done.',
            'Move "{title}" to done.',
        ),
        build=_request("finish", target="logged"),
    ),
    Template(
        name="log_today",
        difficulty=1,
        wordings=(
            'Log {hours} hours on the ticket "{title}" {when}.',
            'Log {hours} hours {when} on "{title}".',
            'I worked {hours} hours on "{title}" {when}: log it.',
        ),
        build=_request("log", target="doing"),
    ),
    Template(
        name="log_date",
        difficulty=1,
        wordings=(
            'Log {hours} hours on the ticket "{title}" {when}.',
            'Log {hours} hours {when} on "{title}".',
        ),
        build=_request("log", target="doing", when="date"),
    ),
    Template(
        name="plan",
        difficulty=1,
        wordings=(
            'Put the ticket "{title}" into the sprint {sprint}.',
            'Plan "{title}" for the sprint {sprint}.',
            'The sprint {sprint} gets the ticket "{title}".',
        ),
        build=_request("into", target="backlog"),
    ),
    Template(
        name="test_mine",
        difficulty=2,
        wordings=(
            "Move the ticket I work on to testing.",
            "My ticket is ready: move it to testing.",
        ),
        build=_my_ticket,
    ),
    Template(
        name="test_from_todo",
        difficulty=2,
        wordings=(
            'Take the ticket "{title}" from todo to testing.',
            'Bring "{title}", which is still todo, to testing.',
        ),
        build=_request("start", "test"),
    ),
    Template(
        name="log_and_finish",
        difficulty=2,
        wordings=(
            'Log {hours} hours on the ticket "{title}" {when} and finish it.',
            'Finish "{title}" with {hours} hours logged {when}.',
        ),
        build=_request("log", "finish", target="testing"),
    ),
    Template(
        name="log_and_test",
        difficulty=2,
        wordings=(
            'Log {hours} hours on the ticket "{title}" {when}, then move it to testing.',
            '"{title}" took me {hours} hours {when}: log them and move it to testing.',
        ),
        build=_request("log", "test", target="doing", when="date"),
    ),
    Template(
        name="create",
        difficulty=1,
        wordings=(
            'Create the ticket "{title}" with {points} points in the epic {epic}.',
            'The epic {epic} needs a new ticket "{title}", {points} points.',
            'Add a ticket "{title}" to the epic {epic}: {points} points.',
        ),
        build=_request("create", target="new"),
    ),
    Template(
        name="create_and_plan",
        difficulty=2,
        wordings=(
            'Create the ticket "{title}" ({points} points, epic {epic}) in the sprint {sprint}.',
            'Add "{title}" to the epic {epic}, {points} points, and plan it for sprint {sprint}.',
        ),
        build=_request("into", target="new"),
    ),
    Template(
        name="plan_roomiest",
        difficulty=2,
        wordings=(
            'Put the ticket "{title}" into the sprint with the most room.',
            'Plan "{title}" for whichever sprint has the most room.',
        ),
        build=_request("roomiest", target="backlog"),
    ),
    Template(
        name="unblock_and_start",
        difficulty=3,
        wordings=(
            'Finish what blocks the ticket "{title}", then start it.',
            '"{title}" is blocked: finish its blocker and move it to doing.',
        ),
        build=_request("unblock", "start", target="blocked"),
    ),
    Template(
        name="make_room_and_plan",
        difficulty=3,
        wordings=(
            'Send "{other}" to the backlog to make room for "{title}" in the sprint {sprint}.',
            'In the sprint {sprint}, "{title}" takes the place of "{other}", which goes to the '
            "backlog.",
        ),
        build=_request("make_room", "into", target="backlog"),
    ),
    Template(
        name="hand_in_and_start",
        difficulty=3,
        wordings=(
            'Move "{other}" to testing and start "{title}".',
            'I start "{title}" now; "{other}" goes to testing.',
        ),
        build=_request("hand_in", "start", target="mine"),
    ),
    Template(
        name="start_reworded",
        difficulty=1,
        wordings=('Set "{title}" to doing.', '"{title}" has begun: set it to doing.'),
        build=_request("start"),
        held_out=True,
    ),
    Template(
        name="plan_reworded",
        difficulty=1,
        wordings=(
            '"{title}" belongs in the sprint {sprint}.',
            'Schedule the ticket "{title}" for {sprint}.',
        ),
        build=_request("into", target="backlog"),
        held_out=True,
    ),
    Template(
        name="log_date_and_finish",
        difficulty=2,
        wordings=('Log {hours} hours on the ticket "{title}" {when} and finish it.',),
        build=_request("log", "finish", target="testing", when="date"),
        held_out=True,
    ),
    Template(
        name="create_and_plan_roomiest",
        difficulty=3,
        wordings=(
            'Create the ticket "{title}" ({points} points, epic {epic}) in the sprint with the '
            "most room.",
        ),
        build=_request("roomiest", target="new"),
        held_out=True,
    ),
    Template(
        name="unblock_and_test",
        difficulty=3,
        wordings=('Finish what blocks the ticket "{title}", then take it on to testing.',),
        build=_request("unblock", "start", "test", target="blocked"),
        held_out=True,
    ),
)
