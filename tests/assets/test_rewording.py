"""Other words for the same request."""

from __future__ import annotations

import random

from assets.warmstart.text.rewording import reworded

REQUEST = 'Book "the best post" in Brno, 3 guests, 2 nights from 2026-10-01.'
TEMPLATE_WORDS = {"book", "in", "guests", "nights", "from", "the", "best", "post", "for"}


def many(request: str) -> set[str]:
    draw = random.Random(0)
    return {reworded(request, TEMPLATE_WORDS, draw) for _ in range(300)}


def test_names_numbers_and_quoted_phrases_stay_whole_with_what_introduces_them() -> None:
    for variant in many(REQUEST):
        for kept in ('Book "the best post" in Brno', "3 guests", "from 2026-10-01"):
            assert kept in variant


def test_clauses_change_places() -> None:
    variants = many(REQUEST)
    assert any(text.index("2 nights") < text.index("3 guests") for text in variants)
    assert any(text.index("3 guests") < text.index("2 nights") for text in variants)


def test_articles_fall_out_and_unknown_words_come_in() -> None:
    variants = many("Book the best post for Mira.")
    assert any("the" not in text.split() for text in variants)
    assert any(set(text.rstrip(".").split()[1:-2]) - TEMPLATE_WORDS for text in variants)
    assert all(text.endswith("for Mira.") for text in variants)


def test_most_requests_keep_most_of_their_words() -> None:
    words = set(REQUEST.replace(",", "").rstrip(".").split())
    for text in many(REQUEST):
        assert words <= set(text.replace(",", "").rstrip(".").split())
