"""Hubspot's requests: deals moved on with what each stage needs, owners in turn, duplicates."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import JsonValue

from hillclimb.minifleet.apps.hubspot.scene import HubspotScene, scene
from hillclimb.minifleet.apps.hubspot.tools import KINDS, STAGES
from hillclimb.minifleet.framework.changes import Change, deleted, inserted, updated
from hillclimb.minifleet.framework.template import FilledTemplate, TaskDraw, Template


def _request(
    *acts: str, target: str = "lead", by: str = "title"
) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests on a deal as `scene` draws it, named by its title or its company.

    Acts: a stage moves the deal there; call, meeting and note log one; amount, contact and owner
    set that (the owner whose turn it is); merge merges the company's two contacts of one name.
    """

    def build(draw: TaskDraw) -> FilledTemplate:
        records = scene(draw, target, is_doubled="merge" in acts)
        survivor = draw.one([records.person, records.duplicate])
        contact = survivor if "merge" in acts else records.person
        deal, firm = records.target, str(records.target["company"])
        goal: dict[str, JsonValue] = {
            "acts": ",".join(acts),
            "query": deal["title"] if by == "title" else firm,
            "firm": firm,
            "name": contact["name"],
            "email": contact["email"],
            "amount": 100 * draw.number(12, 98),
            "text": draw.phrase(draw.pools.verdicts, draw.pools.reasons),
        }
        if goal["amount"] == deal["amount"]:
            goal["amount"] = int(deal["amount"]) + 100
        return FilledTemplate(
            user=records.user,
            words={
                "deal": str(deal["title"]),
                "firm": firm,
                "name": str(contact["name"]),
                "email": str(contact["email"]),
                "amount": int(str(goal["amount"])),
                "text": str(goal["text"]),
            },
            tables={
                "reps": draw.shuffled(records.reps),
                "companies": records.companies,
                "contacts": records.contacts,
                "deals": records.deals,
                "activities": records.activities,
            },
            goal=goal,
            changes=_expected(records, goal, str(contact["id"])),
        )

    return build


def _expected(records: HubspotScene, goal: dict[str, JsonValue], contact: str) -> list[Change]:
    acts, fields = str(goal["acts"]).split(","), dict[str, JsonValue]()
    changes: list[Change] = [
        inserted(
            "activities",
            deal=records.target["id"],
            kind=act,
            text=goal["text"],
            rep=records.user,
        )
        for act in acts
        if act in KINDS
    ]
    if "amount" in acts:
        fields["amount"] = goal["amount"]
    if "owner" in acts:
        fields["owner"] = records.next_rep["id"]
        turn = max(int(row["turn"]) for row in records.reps) + 1
        changes.append(updated("reps", records.next_rep["id"], turn=turn))
    if "merge" in acts:
        pair = (str(records.person["id"]), str(records.duplicate["id"]))
        dropped = pair[pair.index(contact) - 1]
        changes.append(deleted("contacts", dropped))
        if records.target["contact"] == dropped:
            fields["contact"] = contact
    if "contact" in acts:
        fields["contact"] = contact
    reached = [act for act in acts if act in STAGES]
    if reached:
        fields["stage"] = reached[-1]
    return [*changes, *([updated("deals", records.target["id"], **fields)] if fields else [])]


TEMPLATES: tuple[Template, ...] = (
    Template(
        name="amount",
        difficulty=1,
        wordings=(
            'Set the amount of the deal "{deal}" to {amount}.',
            'The deal "{deal}" is worth {amount}: set that.',
            'Change the amount of "{deal}" to {amount}.',
        ),
        build=_request("amount", target="offered"),
    ),
    Template(
        name="amount_company",
        difficulty=1,
        wordings=(
            "Set the amount of the open deal with {firm} to {amount}.",
            "Our open deal with {firm} is worth {amount}: set that.",
        ),
        build=_request("amount", target="qualified", by="company"),
    ),
    Template(
        name="qualify",
        difficulty=1,
        wordings=(
            'Move the deal "{deal}" to qualified.',
            'The lead "{deal}" is qualified now: move it.',
        ),
        build=_request("qualified"),
    ),
    Template(
        name="log_call",
        difficulty=1,
        wordings=(
            'Log the call "{text}" on the deal "{deal}".',
            'I had a call about "{deal}": log "{text}".',
            'On the deal "{deal}", log a call: "{text}".',
        ),
        build=_request("call", target="qualified"),
    ),
    Template(
        name="log_meeting_company",
        difficulty=1,
        wordings=(
            'Log the meeting "{text}" on the open deal with {firm}.',
            'I had a meeting with {firm}: log "{text}" on the open deal.',
        ),
        build=_request("meeting", target="offered", by="company"),
    ),
    Template(
        name="contact",
        difficulty=2,
        wordings=(
            'Make {name} of {firm} the contact of the deal "{deal}".',
            'Our contact for the deal "{deal}" is {name} of {firm}: set that.',
        ),
        build=_request("contact"),
    ),
    Template(
        name="offer",
        difficulty=2,
        wordings=(
            'Set the deal "{deal}" to {amount} and move it to offered.',
            'We offered {amount} for the deal "{deal}": set the amount and move it.',
        ),
        build=_request("amount", "offered", target="qualified"),
    ),
    Template(
        name="win",
        difficulty=2,
        wordings=(
            'The deal "{deal}" is won: log the meeting "{text}" and move it.',
            'Log the meeting "{text}" on "{deal}" and move the deal to won.',
        ),
        build=_request("meeting", "won", target="offered"),
    ),
    Template(
        name="lose",
        difficulty=2,
        wordings=(
            'The deal "{deal}" is lost: add the note "{text}" and move it.',
            'Log the note "{text}" on "{deal}" and move the deal to lost.',
        ),
        build=_request("note", "lost", target="qualified"),
    ),
    Template(
        name="quote_renewal",
        difficulty=2,
        wordings=(
            'Quote {amount} for the renewal "{deal}": set it and move the deal to quoted.',
            'Set the amount of "{deal}" to {amount} and move the renewal to quoted.',
        ),
        build=_request("amount", "quoted", target="due"),
    ),
    Template(
        name="renew",
        difficulty=2,
        wordings=(
            'The deal "{deal}" is renewed: log the call "{text}" and move it.',
            'Log the call "{text}" on "{deal}" and move the deal to renewed.',
        ),
        build=_request("call", "renewed", target="quoted"),
    ),
    Template(
        name="hand_over",
        difficulty=2,
        wordings=(
            'Give the deal "{deal}" to the rep whose turn it is.',
            'The next rep in turn takes over the deal "{deal}".',
        ),
        build=_request("owner", target="qualified"),
    ),
    Template(
        name="merge",
        difficulty=2,
        wordings=(
            "Merge the two contacts {name} at {firm} and keep {email}.",
            "{name} of {firm} is there twice: keep {email} and merge.",
        ),
        build=_request("merge"),
    ),
    Template(
        name="qualify_with_contact",
        difficulty=3,
        wordings=(
            'Make {name} of {firm} the contact of "{deal}" and move the deal to qualified.',
            'The deal "{deal}" is qualified, the contact is {name} of {firm}: set and move it.',
        ),
        build=_request("contact", "qualified", target="bare"),
    ),
    Template(
        name="hand_over_and_log",
        difficulty=3,
        wordings=(
            'Give the deal "{deal}" to the rep whose turn it is and log the note "{text}".',
            'The next rep in turn gets "{deal}"; log the note "{text}" on it.',
        ),
        build=_request("owner", "note", target="due"),
    ),
    Template(
        name="merge_for_deal",
        difficulty=3,
        wordings=(
            'Merge the two contacts {name} at {firm}, keep {email}, and set it on "{deal}".',
            '{name} of {firm} is there twice: keep {email}, merge, and use it for "{deal}".',
        ),
        build=_request("merge", "contact", target="bare"),
    ),
    Template(
        name="amount_reworded",
        difficulty=1,
        wordings=('"{deal}" is now a deal of {amount}.', 'Put {amount} as the amount of "{deal}".'),
        build=_request("amount", target="offered"),
        held_out=True,
    ),
    Template(
        name="win_company",
        difficulty=2,
        wordings=(
            'Log the meeting "{text}" on the open deal with {firm} and move the deal to won.',
        ),
        build=_request("meeting", "won", target="offered", by="company"),
        held_out=True,
    ),
    Template(
        name="merge_reworded",
        difficulty=2,
        wordings=("Of the two {name} at {firm} only {email} stays: merge them.",),
        build=_request("merge"),
        held_out=True,
    ),
    Template(
        name="quote_company",
        difficulty=2,
        wordings=("Set the open deal with {firm} to {amount} and move it to quoted.",),
        build=_request("amount", "quoted", target="due", by="company"),
        held_out=True,
    ),
    Template(
        name="hand_over_and_call",
        difficulty=3,
        wordings=(
            'Give the renewal "{deal}" to the rep whose turn it is and log the call "{text}".',
        ),
        build=_request("owner", "call", target="quoted"),
        held_out=True,
    ),
)
