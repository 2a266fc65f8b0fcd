"""A team's board: three open sprints of which one is full, a closed one, and five tickets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hillclimb.minifleet.apps.fira.tools import BACKLOG, DOING, POINTS, TESTING, TODO
from hillclimb.minifleet.framework.template import TaskDraw
from hillclimb.minifleet.framework.world import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class FiraScene:
    """Start state of a fira task; `tested` blocks the target where the target is blocked."""

    user: str
    team: list[str]
    sprints: list[str]
    """The roomiest, another with room, the full one, the closed one."""
    epics: list[str]
    capacities: dict[str, int]
    target: Row
    busy: Row
    """The ticket in progress of the user."""
    tested: Row
    """In testing, with hours logged."""
    filler: Row
    """To do, in the full sprint."""
    idle: Row
    worklogs: list[Row]
    new_title: str

    def tables(self, draw: TaskDraw) -> dict[str, list[Row]]:
        """Return the start state."""
        tickets = [self.target, self.busy, self.tested, self.filler, self.idle]
        return {
            "members": [{"id": name} for name in self.team],
            "epics": [{"id": name} for name in self.epics],
            "sprints": draw.shuffled(
                [
                    {"id": name, "state": "closed" if at == 3 else "open", "capacity": capacity}
                    for at, (name, capacity) in enumerate(self.capacities.items())
                ]
            ),
            "tickets": draw.shuffled(tickets),
            "worklogs": self.worklogs,
        }


_TARGETS: Mapping[str, tuple[str, bool, bool]] = {
    "todo": (TODO, True, False),
    "doing": (DOING, True, False),
    "testing": (TESTING, True, False),
    "logged": (TESTING, True, False),
    "backlog": (TODO, False, False),
    "blocked": (TODO, True, False),
    "mine": (TODO, True, True),
}
"""Kinds of target: status, in a sprint or not, the user's or not."""


def scene(draw: TaskDraw, target: str) -> FiraScene:
    """Draw a board whose target is as named in `_TARGETS`; a `logged` one has hours logged."""
    status, is_planned, is_mine = _TARGETS[target]
    team, codes = draw.some(draw.pools.people, 4), draw.some(draw.pools.projects, 6)
    user, *others = team
    sprints, epics = codes[:4], codes[4:]
    titles, ids = draw.phrases(draw.pools.efforts, draw.pools.modules, 6), draw.ids("f", 5)

    def ticket(at: int, status: str, sprint: str, owner: str, points: int) -> Row:
        return {
            "id": ids[at],
            "title": titles[at],
            "epic": draw.one(epics),
            "points": points,
            "owner": owner,
            "status": status,
            "sprint": sprint,
            "blocker": ids[2] if at == 0 and target == "blocked" else "",
        }

    where = draw.one(sprints[:2]) if is_planned else BACKLOG
    tickets = [
        ticket(0, status, where, user if is_mine else others[0], draw.one(POINTS[:4])),
        ticket(1, DOING, sprints[0], user, draw.one(POINTS)),
        ticket(2, TESTING, sprints[1], others[1], draw.one(POINTS)),
        ticket(3, TODO, sprints[2], others[2], POINTS[4]),
        ticket(4, TODO, sprints[1], others[1], draw.one(POINTS)),
    ]
    logged = [tickets[2], *([tickets[0]] if target == "logged" else [])]
    rooms = (draw.number(9, 13), 8, 0, draw.number(9, 13))
    return FiraScene(
        user=user,
        team=team,
        sprints=sprints,
        epics=epics,
        capacities={
            name: room + sum(int(row["points"]) for row in tickets if row["sprint"] == name)
            for name, room in zip(sprints, rooms, strict=True)
        },
        target=tickets[0],
        busy=tickets[1],
        tested=tickets[2],
        filler=tickets[3],
        idle=tickets[4],
        worklogs=[
            {
                "id": log,
                "ticket": row["id"],
                "member": row["owner"],
                "date": draw.earlier(),
                "hours": draw.number(1, 8),
            }
            for log, row in zip(draw.ids("w", 2), logged, strict=False)
        ],
        new_title=titles[5],
    )
