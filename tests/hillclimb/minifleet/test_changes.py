"""Judging a final state by what changed."""

from __future__ import annotations

from hillclimb.minifleet.framework.changes import (
    deleted,
    difference,
    explain_mismatch,
    inserted,
    updated,
)
from hillclimb.minifleet.framework.world import Table

SEED: dict[str, Table] = {
    "mails": {"m1": {"id": "m1", "folder": "inbox", "subject": "rent"}},
    "sent": {},
}


def test_a_difference_lists_inserts_updates_and_deletes() -> None:
    after: dict[str, Table] = {
        "mails": {"m2": {"id": "m2", "folder": "work", "subject": "tax"}},
        "sent": {"s1": {"id": "s1", "to": "a@b.c"}},
    }
    assert difference(SEED, after) == [
        deleted("mails", "m1"),
        inserted("mails", folder="work", subject="tax"),
        inserted("sent", to="a@b.c"),
    ]
    moved: dict[str, Table] = {
        "mails": {"m1": {"id": "m1", "folder": "work", "subject": "rent"}},
        "sent": {},
    }
    assert difference(SEED, moved) == [updated("mails", "m1", folder="work")]


def test_changes_are_compared_as_a_multiset() -> None:
    once, other = inserted("sent", to="a"), inserted("sent", to="b")
    assert explain_mismatch([once, other], [other, once]) is None
    assert explain_mismatch([once], [once, once]) == "unexpected: insert in sent"
    assert explain_mismatch([once, once], [once]) == "missing: insert in sent"


def test_a_choice_accepts_each_listed_value_and_no_other() -> None:
    wanted = inserted("bookings", room={"any": ["r1", "r2"]}, nights=2)
    assert explain_mismatch([wanted], [inserted("bookings", room="r2", nights=2)]) is None
    assert explain_mismatch([wanted], [inserted("bookings", room="r3", nights=2)])
    assert explain_mismatch([wanted], [inserted("bookings", room="r1", nights=1)])


def test_an_update_of_one_field_more_is_not_the_update_asked_for() -> None:
    wanted = updated("mails", "m1", folder="work")
    assert explain_mismatch([wanted], [updated("mails", "m1", folder="work", subject="x")])
    assert explain_mismatch([wanted], [updated("mails", "m2", folder="work")])
