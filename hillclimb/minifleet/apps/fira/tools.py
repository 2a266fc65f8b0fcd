"""Fira's tools: tickets belong to epics, lie in sprints, block each other and carry worklogs.

Rules: a ticket goes todo, doing, testing, done, one step at a time, or back to todo; it starts
only from an open sprint, when what blocks it is done and its owner works on nothing else; it is
done only with hours logged. A sprint holds no more points than its capacity, and only tickets
still to do change their sprint. Hours are logged on started tickets, 8 a day at most, and never
ahead of time.
"""

from __future__ import annotations

from datetime import date

from hillclimb.minifleet.framework.app import Tool, line, lines, read_only_tool, tool
from hillclimb.minifleet.framework.schema import integer, text
from hillclimb.minifleet.framework.world import Fields, Row, RuleBroken, World, matches, same

STATUSES = ("todo", "doing", "testing", "done")
TODO, DOING, TESTING, DONE = STATUSES
POINTS = (1, 2, 3, 5, 8)
BACKLOG = "backlog"
MAX_HOURS = 8


def find_tickets(world: World, args: Fields) -> str:
    """Return the tickets of an owner that are not done, or those whose title matches."""
    query = args.text("query")
    rest = [row for row in world.rows("tickets") if row["status"] != DONE]
    # Names are short: "Ida" is also in "validate", and must not find it.
    owned = [row for row in rest if same(query, row["owner"])]
    return lines(
        {
            "ticket": row["id"],
            "title": row["title"],
            "points": row["points"],
            "status": row["status"],
            "blocker": row["blocker"],
        }
        for row in owned or [row for row in rest if matches(query, row["title"])]
    )


def list_sprints(world: World, args: Fields) -> str:
    """Return the open sprints with room for that many points, the roomiest first."""
    rooms = [(_room(world, row), row) for row in world.rows("sprints", state="open")]
    fitting = [pair for pair in rooms if pair[0] >= args.number("points")]
    fitting.sort(key=lambda pair: -pair[0])
    return lines(
        ({"sprint": row["id"], "room": room} for room, row in fitting), empty="no sprint has room"
    )


def create_ticket(world: World, args: Fields) -> str:
    """Create a ticket of the user's in the backlog."""
    title, points = args.text("title").strip(), args.number("points")
    epic = world.get("epics", args.text("epic"), "epic")
    if not title:
        raise RuleBroken("title is empty")
    if points not in POINTS:
        raise RuleBroken(f"points must be one of {', '.join(map(str, POINTS))}")
    if any(same(row["title"], title) and row["status"] != DONE for row in world.rows("tickets")):
        raise RuleBroken("there is a ticket of that title: use it or change the title")
    content: Row = {"title": title, "epic": epic["id"], "points": points, "owner": world.user}
    ticket = world.add("tickets", "f", **content, status=TODO, sprint=BACKLOG, blocker="")
    return line(ticket=ticket, status=TODO)


def plan_ticket(world: World, args: Fields) -> str:
    """Put a ticket into an open sprint with enough room, or back into the backlog."""
    ticket, name = _unfinished(world, args), args.text("sprint")
    if ticket["status"] != TODO:
        raise RuleBroken(f"ticket is {ticket['status']}: only todo tickets change their sprint")
    if name not in (BACKLOG, ticket["sprint"]):
        sprint = world.get("sprints", name, "sprint")
        if sprint["state"] != "open":
            raise RuleBroken("sprint is closed: list_sprints shows the open ones")
        room = _room(world, sprint)
        if int(ticket["points"]) > room:
            raise RuleBroken(f"ticket has {ticket['points']} points, sprint has room for {room}")
    ticket["sprint"] = name
    return line(ticket=ticket["id"], sprint=name)


def move_ticket(world: World, args: Fields) -> str:
    """Move a ticket to the next status, or back to todo."""
    ticket, status = _unfinished(world, args), args.text("status")
    following = STATUSES[STATUSES.index(str(ticket["status"])) + 1]
    if status not in (following, TODO):
        back = "" if ticket["status"] == TODO else f" or back to {TODO}"
        raise RuleBroken(f"a {ticket['status']} ticket goes to {following}{back}")
    if status == DOING:
        _require_startable(world, ticket)
    if status == DONE and not world.rows("worklogs", ticket=ticket["id"]):
        raise RuleBroken("no hours are logged on it: log work first")
    ticket["status"] = status
    return line(ticket=ticket["id"], status=status)


def log_work(world: World, args: Fields) -> str:
    """Log hours of the user's on a started ticket."""
    ticket, hours = _unfinished(world, args), args.number("hours")
    try:
        day = date.fromisoformat(args.text("date")).isoformat()
    except ValueError:
        raise RuleBroken("date must be like 2026-03-14") from None
    if ticket["status"] == TODO:
        raise RuleBroken("ticket is todo: hours are logged once it is doing")
    if day > world.today:
        raise RuleBroken("date is in the future: log hours when they are worked")
    logged = sum(int(row["hours"]) for row in world.rows("worklogs", member=world.user, date=day))
    if not 1 <= hours <= MAX_HOURS - logged:
        raise RuleBroken(f"hours must be 1 to {MAX_HOURS} a day, {logged} are logged")
    entry: Row = {"ticket": ticket["id"], "member": world.user, "date": day, "hours": hours}
    world.add("worklogs", "w", **entry)
    return line(ticket=ticket["id"], status="logged")


def _unfinished(world: World, args: Fields) -> Row:
    ticket = world.get("tickets", args.text("ticket"), "ticket")
    if ticket["status"] == DONE:
        raise RuleBroken("ticket is done")
    return ticket


def _room(world: World, sprint: Row) -> int:
    planned = sum(int(row["points"]) for row in world.rows("tickets", sprint=sprint["id"]))
    return int(sprint["capacity"]) - planned


def _require_startable(world: World, ticket: Row) -> None:
    if ticket["sprint"] == BACKLOG:
        raise RuleBroken("ticket is in the backlog: plan it into a sprint first")
    blocker = world.tables["tickets"].get(str(ticket["blocker"]))
    if blocker is not None and blocker["status"] != DONE:
        raise RuleBroken(
            f"blocked by {blocker['id']}, which is {blocker['status']}: finish it first"
        )
    busy = world.rows("tickets", owner=ticket["owner"], status=DOING)
    if busy:
        raise RuleBroken(f"{ticket['owner']} works on {busy[0]['id']}: move that on first")


TOOLS: tuple[Tool, ...] = (
    read_only_tool("find_tickets", "by title or owner", find_tickets, {"query": text()}),
    read_only_tool(
        "list_sprints", "with room, roomiest first", list_sprints, {"points": integer()}
    ),
    tool(
        "create_ticket",
        "new ticket",
        create_ticket,
        {"title": text(), "epic": text(), "points": integer()},
    ),
    tool("plan_ticket", "sprint or backlog", plan_ticket, {"ticket": text(), "sprint": text()}),
    tool("move_ticket", "one step", move_ticket, {"ticket": text(), "status": text(*STATUSES)}),
    tool(
        "log_work",
        "log hours",
        log_work,
        {"ticket": text(), "hours": integer(), "date": text()},
    ),
)
