"""Dates that need today's date are found, and numbers that are none are left alone."""

from __future__ import annotations

import pytest

from hillclimb.datasets.lint.dates import partial_dates


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Schedule a tour on January 30th at 10 AM.", ["January 30th"]),
        ("Move in by February 1st.", ["February 1st"]),
        ("Book from March 5 to March 9.", ["March 5", "March 9"]),
        ("Reserve a table for the 2nd of May.", ["2nd of May"]),
        ("Check in on 5 June, please.", ["5 June"]),
        ("Due Sept. 3", ["Sept. 3"]),
        ("Deliver it on Dec 24.", ["Dec 24"]),
        ("Is it free on 12/25?", ["on 12/25"]),
        ("Remind me on the 12th.", ["on the 12th"]),
        ("From the 12th to the 15th of next month.", ["From the 12th to the 15th", "next month"]),
        ("Meet me next Friday.", ["next Friday"]),
        ("Find tickets for this weekend.", ["this weekend"]),
        ("Book a taxi for tomorrow morning.", ["tomorrow"]),
        ("What did I order yesterday?", ["yesterday"]),
        ("Ship it by Thursday.", ["by Thursday"]),
        ("A table for Saturday at 7, please.", ["for Saturday"]),
        ("Fly in two weeks.", ["in two weeks"]),
        ("List issues closed in the past 30 days.", ["past 30 days"]),
        ("Mails that came 3 days ago", ["3 days ago"]),
        ("Show last month's invoices.", ["last month"]),
        ("Open issues of this quarter", ["this quarter"]),
        ("It was built in 2019. Visit it on March 11th.", ["March 11th"]),
        ("Leave tomorrow, March 5, 2026.", ["tomorrow"]),
        ("Leave on\nMARCH 5\n", ["MARCH 5"]),
        ("Find a hotel under $2000 for March 5.", ["March 5"]),
        ("Collect 2000 points by March 5.", ["March 5"]),
        ("A laptop below 2000 dollars, delivered March 5.", ["March 5"]),
        ("Book room 1984 on May 5.", ["May 5"]),
        ("Call her Friday at 3pm.", ["Friday at 3"]),
        ("Dinner Tuesday evening", ["Tuesday evening"]),
        ("Which mails came this morning?", ["this morning"]),
        ("What came last night?", ["last night"]),
        ("Book it on march 5.", ["on march 5"]),
        ("Meet on the 2nd and 3rd.", ["on the 2nd and 3rd"]),
        ("Sales over the past week", ["over the past week"]),
        ("Everything of the last two weeks", ["last two weeks"]),
    ],
)
def test_a_date_that_needs_today_is_found(prompt: str, words: list[str]) -> None:
    assert partial_dates(prompt) == tuple(words)


@pytest.mark.parametrize(
    "prompt",
    [
        "Book the cheapest hotel in Brno for 3 nights.",
        "Book from March 5, 2026 to March 9, 2026.",
        "Between 5 and 7 March 2026, and on 2026-03-09.",
        "From March 5 to March 9, 2026.",
        "On 12/25/2026 or 25.12.2026.",
        "March 2026 was wet.",
        "You may 5 times retry; they march 5 miles.",
        "Find homes in March, Cambridgeshire.",
        "The office is on the 12th floor.",
        "Take 5th Avenue to the 2nd exit.",
        "Finish in 3rd place.",
        "Their support is there 24/7, and 3/5 of it is free.",
        "Add 1/2 cup of milk.",
        "Returns are taken for a month; 30-day trial.",
        "A standup every Monday, on Mondays and Fridays.",
        "The Black Friday sale",
        "Order 15,000 units of part March 15,000.",
        "Close issue #12 and list the top 10.",
        "Pay $1,200.50 at 10:30 to Mayfield 5.",
        "Accept returns within 30 days of purchase.",
        "Deliver it the next day.",
        "Check out on the last day of the trip, or the following day.",
        "Compare the 2nd and the 3rd offer.",
        "Compare the 2nd and the 3rd.",
        "Every Friday at 3pm, and on Monday mornings.",
        "On Black Friday at 9, buy the 2nd.",
        "In 2026, book from March 5 to March 9.",
        "Leave March 5th, '26, or on March 6th of 2026.",
        "Rate it 9/10, or 4/5.",
        "Open Monday to Friday from 9.",
        "Staff it between Monday and Friday.",
        "Answer within 3 days.",
        "Leave the following week.",
        "Is it open 12/25?",
        "Put it after the 2nd and before noon.",
        "",
    ],
)
def test_other_numbers_and_words_are_left_alone(prompt: str) -> None:
    assert partial_dates(prompt) == ()
