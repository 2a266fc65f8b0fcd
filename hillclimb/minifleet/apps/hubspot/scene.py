"""A sales team's records: two companies, a namesake, perhaps a duplicate, four reps in a rota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hillclimb.minifleet.framework.template import TaskDraw
from hillclimb.minifleet.framework.world import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class HubspotScene:
    """Start state of a hubspot task; the target is the one open deal of its company."""

    user: str
    reps: list[Row]
    companies: list[Row]
    person: Row
    """Works at the target's company; a namesake works at the other one."""
    duplicate: Row
    """Name and company of the person, another address; in the tables only where asked for."""
    contacts: list[Row]
    deals: list[Row]
    target: Row
    activities: list[Row]

    @property
    def next_rep(self) -> Row:
        """The rep whose turn it is."""
        return min(self.reps, key=lambda row: int(row["turn"]))


_TARGETS: Mapping[str, tuple[str, bool, bool]] = {
    "lead": ("sales", True, False),
    "bare": ("sales", False, False),
    "qualified": ("sales", True, False),
    "offered": ("sales", True, True),
    "due": ("renewal", True, False),
    "quoted": ("renewal", True, True),
}
"""Kinds of target by stage (`bare` is a lead too): pipeline, with a contact or not, with an amount
or not."""


def scene(draw: TaskDraw, target: str, *, is_doubled: bool) -> HubspotScene:
    """Draw records whose target deal is as named in `_TARGETS`."""
    pipeline, has_contact, has_amount = _TARGETS[target]
    people, firms = draw.some(draw.pools.people, 6), draw.some(draw.pools.firms, 2)
    contacts, reps = _contacts(draw, people[4:], firms), _rota(draw, people[:4])
    # A deal that is handed over changes its owner: it never lies with the rep who is next.
    owners = [str(row["id"]) for row in reps if row["turn"] != 1]
    titles, ids = draw.phrases(draw.pools.wares, draw.pools.terms, 4), draw.ids("d", 4)

    def deal(at: int, where: tuple[str, str], contact: Row, amount: int) -> Row:
        return {
            "id": ids[at],
            "title": titles[at],
            "company": contact["company"],
            "pipeline": where[0],
            "stage": where[1],
            "amount": amount,
            "contact": contact["id"] if at or has_contact else "",
            "owner": draw.one(owners),
        }

    contact, stage = contacts[3 if is_doubled else 2], "lead" if target == "bare" else target
    deals = [
        deal(0, (pipeline, stage), contact, _amount(draw) if has_amount else 0),
        deal(1, ("sales", "won"), contacts[2], _amount(draw)),
        deal(2, ("sales", "lead"), contacts[1], 0),
        deal(3, ("renewal", "due"), contacts[1], _amount(draw)),
    ]
    logged: Row = {"deal": ids[3], "kind": "call", "rep": people[1]}
    remark = draw.phrase(draw.pools.verdicts, draw.pools.reasons)
    return HubspotScene(
        user=people[0],
        reps=reps,
        companies=[{"id": firm} for firm in firms],
        person=contacts[0],
        duplicate=contacts[3],
        contacts=draw.shuffled(contacts if is_doubled else contacts[:3]),
        deals=draw.shuffled(deals),
        target=deals[0],
        activities=[{"id": draw.ids("a", 1)[0], **logged, "text": remark}],
    )


def _contacts(draw: TaskDraw, names: list[str], firms: list[str]) -> list[Row]:
    """Return a person at the first firm, a namesake at the second, a colleague, a duplicate."""
    (name, colleague), (firm, rival) = names, firms
    mailbox = draw.one(draw.pools.mailboxes)
    who = ((name, firm, firm), (name, rival, rival), (colleague, firm, firm), (name, firm, mailbox))
    return [
        {"id": key, "name": each, "email": f"{each}@{host}.com".lower(), "company": company}
        for key, (each, company, host) in zip(draw.ids("p", 4), who, strict=True)
    ]


def _rota(draw: TaskDraw, names: list[str]) -> list[Row]:
    turns = zip(names, draw.digits(1, len(names)), strict=True)
    return [{"id": name, "turn": turn} for name, turn in turns]


def _amount(draw: TaskDraw) -> int:
    return 100 * draw.number(12, 98)
