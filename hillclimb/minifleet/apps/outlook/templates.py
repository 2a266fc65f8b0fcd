"""Outlook's requests: send, reply, forward, file and invite; addresses must be looked up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.minifleet.apps.outlook.tools import FOLDERS
from hillclimb.minifleet.framework.changes import Change, inserted, updated
from hillclimb.minifleet.framework.template import FilledTemplate, TaskDraw, Template
from hillclimb.minifleet.framework.world import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scene:
    """Five people with unguessable addresses and one mail each from three of them."""

    contacts: list[Row]
    mails: list[Row]

    def address(self, at: int) -> str:
        """Return a contact's address; contact 0 is the user, 1 wrote mail 0."""
        return str(self.contacts[at]["address"])


def _scene(draw: TaskDraw) -> _Scene:
    people, domains = draw.some(draw.pools.people, 5), draw.some(draw.pools.domains, 5)
    contacts: list[Row] = [
        {"id": f"p{at}", "name": name, "address": f"{name.lower()}@{domain}"}
        for at, (name, domain) in enumerate(zip(people, domains, strict=True))
    ]
    subjects = draw.phrases(draw.pools.topics, draw.pools.papers, 3)
    mails: list[Row] = [
        {"id": mail, "sender": contact["address"], "subject": subject, "folder": "inbox"}
        for mail, contact, subject in zip(draw.ids("m", 3), contacts[1:4], subjects, strict=True)
    ]
    return _Scene(contacts=contacts, mails=mails)


def _request(
    *acts: str, by: str = "subject", when: str = "date"
) -> Callable[[TaskDraw], FilledTemplate]:
    """Build requests; acts are send, send_second, reply, forward, forward_me, move and event.

    `by` says how the mail is named (subject or sender), `when` how the event's day is.
    """

    def build(draw: TaskDraw) -> FilledTemplate:
        scene, folder = _scene(draw), draw.one(FOLDERS[1:])
        mail = scene.mails[0]
        date = {"today": draw.today, "tomorrow": draw.tomorrow}.get(when) or draw.later()
        to = 0 if "forward_me" in acts else 4
        goal: dict[str, JsonValue] = {
            "acts": ",".join(acts).replace("forward_me", "forward"),
            "query": mail["subject"] if by == "subject" else scene.contacts[1]["name"],
            "name": scene.contacts[to]["name"],
            "second": scene.contacts[3]["name"],
            "text": draw.phrase(draw.pools.verdicts, draw.pools.reasons),
            "title": draw.phrase(draw.pools.topics, draw.pools.papers),
            "folder": folder,
            "date": date,
        }
        return FilledTemplate(
            user=str(scene.contacts[0]["name"]),
            words={
                "subject": str(mail["subject"]),
                "sender": str(scene.contacts[1]["name"]),
                "name": str(goal["name"]),
                "second": str(goal["second"]),
                "text": str(goal["text"]),
                "title": str(goal["title"]),
                "folder": folder,
                "when": when if when != "date" else f"on {date}",
            },
            tables={
                "contacts": draw.shuffled(scene.contacts),
                "mails": draw.shuffled(scene.mails),
                "sent": [],
                "events": [],
            },
            goal=goal,
            changes=[_expected(act, scene, goal, scene.address(to)) for act in acts],
        )

    return build


def _expected(act: str, scene: _Scene, goal: dict[str, JsonValue], address: str) -> Change:
    mail = scene.mails[0]
    if act == "move":
        return updated("mails", mail["id"], folder=goal["folder"])
    if act == "event":
        return inserted("events", title=goal["title"], date=goal["date"], guest=address)
    if act.startswith("forward"):
        return inserted("sent", to=address, text="", forwarded=mail["id"])
    to = {"send": address, "send_second": scene.address(3), "reply": mail["sender"]}[act]
    return inserted("sent", to=to, text=goal["text"], forwarded="")


TEMPLATES: tuple[Template, ...] = (
    Template(
        name="send",
        difficulty=1,
        wordings=(
            'Send "{text}" to {name}.',
            'Write {name} a mail: "{text}".',
            'Mail "{text}" to {name}.',
            'Send a mail to {name}: "{text}".',
        ),
        build=_request("send"),
    ),
    Template(
        name="reply_subject",
        difficulty=1,
        wordings=(
            'Reply "{text}" to the mail "{subject}".',
            'Answer the mail "{subject}" with "{text}".',
            'Reply to "{subject}": "{text}".',
        ),
        build=_request("reply"),
    ),
    Template(
        name="reply_sender",
        difficulty=1,
        wordings=(
            'Reply "{text}" to the mail from {sender}.',
            'Answer the mail from {sender} with "{text}".',
        ),
        build=_request("reply", by="sender"),
    ),
    Template(
        name="move_subject",
        difficulty=1,
        wordings=(
            'Move the mail "{subject}" to {folder}.',
            'Put the mail "{subject}" into {folder}.',
            'File "{subject}" under {folder}.',
            'Put "{subject}" into {folder}.',
        ),
        build=_request("move"),
    ),
    Template(
        name="move_sender",
        difficulty=1,
        wordings=(
            "Move the mail from {sender} to {folder}.",
            "Put the mail from {sender} into {folder}.",
        ),
        build=_request("move", by="sender"),
    ),
    Template(
        name="forward_subject",
        difficulty=2,
        wordings=(
            'Forward the mail "{subject}" to {name}.',
            'Pass the mail "{subject}" on to {name}.',
            'Forward "{subject}" to {name}.',
        ),
        build=_request("forward"),
    ),
    Template(
        name="forward_sender",
        difficulty=2,
        wordings=(
            "Forward the mail from {sender} to {name}.",
            "Pass the mail from {sender} on to {name}.",
        ),
        build=_request("forward", by="sender"),
    ),
    Template(
        name="forward_me",
        difficulty=3,
        wordings=(
            'Forward the mail "{subject}" to my own address.',
            'Forward "{subject}" to myself.',
        ),
        build=_request("forward_me"),
    ),
    Template(
        name="event_date",
        difficulty=2,
        wordings=(
            'Add the event "{title}" {when} with {name}.',
            'Invite {name} to "{title}" {when}.',
            'Plan "{title}" with {name} {when}.',
        ),
        build=_request("event"),
    ),
    Template(
        name="event_today",
        difficulty=2,
        wordings=(
            'Add the event "{title}" {when} with {name}.',
            'Invite {name} to "{title}" {when}.',
        ),
        build=_request("event", when="today"),
    ),
    Template(
        name="event_tomorrow",
        difficulty=3,
        wordings=(
            'Add the event "{title}" {when} with {name}.',
            'Plan "{title}" with {name} {when}.',
        ),
        build=_request("event", when="tomorrow"),
    ),
    Template(
        name="reply_and_move",
        difficulty=3,
        wordings=(
            'Reply "{text}" to the mail "{subject}" and move it to {folder}.',
            'Answer "{subject}" with "{text}", then put it into {folder}.',
            'Answer the mail "{subject}" with "{text}", then put it into {folder}.',
        ),
        build=_request("reply", "move"),
    ),
    Template(
        name="send_two",
        difficulty=3,
        wordings=(
            'Send "{text}" to {name} and {second}.',
            'Mail "{text}" to {name} and {second}.',
        ),
        build=_request("send", "send_second"),
    ),
    Template(
        name="send_reworded",
        difficulty=1,
        wordings=('Write a mail to {name}: "{text}".', 'Send {name} the mail "{text}".'),
        build=_request("send"),
        held_out=True,
    ),
    Template(
        name="move_reworded",
        difficulty=1,
        wordings=(
            'Move "{subject}" to {folder}.',
            'File the mail "{subject}" under {folder}.',
        ),
        build=_request("move"),
        held_out=True,
    ),
    Template(
        name="event_tomorrow_reworded",
        difficulty=3,
        wordings=('Invite {name} to "{title}" {when}.',),
        build=_request("event", when="tomorrow"),
        held_out=True,
    ),
    Template(
        name="reply_sender_and_move",
        difficulty=3,
        wordings=(
            'Reply "{text}" to the mail from {sender} and move it to {folder}.',
            'Answer the mail from {sender} with "{text}", then put it into {folder}.',
        ),
        build=_request("reply", "move", by="sender"),
        held_out=True,
    ),
)
