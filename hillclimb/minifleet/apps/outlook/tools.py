"""Outlook's tools: contacts have addresses, mails lie in folders, events invite contacts.

Rules: mail goes to addresses of contacts only, mails move between four folders, events start
today or later and invite a contact.
"""

from __future__ import annotations

from datetime import date

from hillclimb.minifleet.framework.app import Tool, line, lines, read_only_tool, tool
from hillclimb.minifleet.framework.schema import text
from hillclimb.minifleet.framework.world import Fields, RuleBroken, World, matches, quoted, same

FOLDERS = ("inbox", "archive", "work", "home")


def find_contact(world: World, args: Fields) -> str:
    """Return the contacts of a name."""
    return lines(
        {"name": row["name"], "address": row["address"]}
        for row in world.rows("contacts")
        if same(row["name"], args.text("name"))
    )


def find_mails(world: World, args: Fields) -> str:
    """Return mails whose subject or sender matches."""
    query = args.text("query")
    return lines(
        {"mail": row["id"], "from": row["sender"], "subject": row["subject"]}
        for row in world.rows("mails")
        if matches(query, row["subject"]) or same(query, str(row["sender"]).split("@")[0])
    )


def send_mail(world: World, args: Fields) -> str:
    """Send a text to a contact's address."""
    address, body = _known_address(world, args.text("to")), args.text("text").strip()
    if not body:
        raise RuleBroken("text is empty")
    world.add("sent", "s", to=address, text=body, forwarded="")
    return line(to=address, status="sent")


def forward_mail(world: World, args: Fields) -> str:
    """Forward a mail to a contact's address."""
    mail = world.get("mails", args.text("mail"), "mail")
    address = _known_address(world, args.text("to"))
    world.add("sent", "s", to=address, text="", forwarded=mail["id"])
    return line(mail=mail["id"], status="forwarded")


def move_mail(world: World, args: Fields) -> str:
    """Move a mail to a folder."""
    mail = world.get("mails", args.text("mail"), "mail")
    mail["folder"] = args.text("folder")
    return line(mail=mail["id"], folder=mail["folder"])


def add_event(world: World, args: Fields) -> str:
    """Add an event that invites a contact."""
    title, day = args.text("title").strip(), args.text("date")
    try:
        start = date.fromisoformat(day).isoformat()
    except ValueError:
        raise RuleBroken("date must be like 2026-03-14") from None
    if start < world.today:
        raise RuleBroken("date is in the past")
    if not title:
        raise RuleBroken("title is empty")
    guest = _known_address(world, args.text("guest"))
    event = world.add("events", "e", title=title, date=start, guest=guest)
    return line(event=event, status="added")


def _known_address(world: World, address: str) -> str:
    for row in world.rows("contacts"):
        if same(row["address"], address):
            return str(row["address"])
    raise RuleBroken(f"no contact has the address {quoted(address)}")


TOOLS: tuple[Tool, ...] = (
    read_only_tool("find_contact", "address", find_contact, {"name": text()}),
    read_only_tool("find_mails", "by subject or sender", find_mails, {"query": text()}),
    tool("send_mail", "to an address", send_mail, {"to": text(), "text": text()}),
    tool("forward_mail", "to an address", forward_mail, {"mail": text(), "to": text()}),
    tool("move_mail", "to a folder", move_mail, {"mail": text(), "folder": text(*FOLDERS)}),
    tool(
        "add_event",
        "guest: an address",
        add_event,
        {"title": text(), "date": text(), "guest": text()},
    ),
)
