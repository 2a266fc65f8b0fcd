"""Finds dates in a prompt that mean nothing without knowing what day it is.

"March 5" needs a year, "next Friday" and "in two weeks" need today. A model without CURRENT_DATE
guesses, and a verifier that checks the full date fails it. English only, and by patterns: it is a
lint, which may be wrong about a sentence, and whose examples say which words it went by.
"""

from __future__ import annotations

import re

_MONTH = (
    r"(?:(?i:jan(?:uary)?|feb(?:ruary)?|apr(?:il)?|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)|Mar(?:ch)?|MAR(?:CH)?|May|MAY)\b\.?"
)
"""March and May count with a capital only: both are verbs too."""
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?\b"
_NO_LONGER_NUMBER = r"(?![\d,.]*\d|:\d|\s*(?i:am|pm|%|°))"
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_NUMBER = r"(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|a (?:few|couple of))"
_UNIT = r"(?:day|night|week|weekend|month|year|quarter)"
_SINCE = r"(?:on|by|until|till|before|after|from|through|since|between|starting|due)"

_YEARLESS = re.compile(
    rf"\b{_MONTH}\s+(?:the\s+)?{_DAY}{_NO_LONGER_NUMBER}"
    rf"|\b{_DAY}\s+(?:of\s+)?{_MONTH}"
    rf"|\b(?i:{_SINCE})\s+(?:0?[1-9]|1[0-2])/(?:0?[1-9]|[12]\d|3[01])\b(?![/\d%]|\s+of\b)"
    rf"|\b(?i:{_SINCE}|and|to)\s+the\s+(?:[12]?\d|3[01])(?:st|nd|rd|th)\b"
    r"(?=\s*(?:$|[.,;:!?)\"'\n])|\s+(?:at|and|or|to|through|until|for|from|with|in|as)\b"
    r"|\s+of\s+(?:this|next|the|each)\s+month\b)"
)
"""Day and month, or a day alone: a year in the same sentence makes them whole."""
_RELATIVE = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday)(?!['’]s\s+(?:world|special))\b"
    rf"|\b(?:next|this|last|coming|upcoming|following|past|previous)\s+(?:{_WEEKDAY}|{_UNIT}"
    r"|spring|summer|autumn|fall|winter)\b"
    rf"|\b(?:{_SINCE}|for)\s+(?:the\s+)?{_WEEKDAY}\b"
    rf"|\b(?:in|within)\s+(?:the\s+next\s+)?{_NUMBER}\s+(?:{_UNIT}s?)\b(?!\s+of\b)"
    rf"|\b(?:next|past|last)\s+{_NUMBER}\s+{_UNIT}s?\b"
    rf"|\b{_NUMBER}\s+{_UNIT}s?\s+(?:ago|from\s+(?:now|today))\b",
    re.IGNORECASE,
)
"""A day that is counted from today: no year makes it whole."""
_YEAR = re.compile(r"\b(?:19|20)\d\d\b|['’]\d\d\b")
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])|\n+")
_HINT = re.compile(
    r"\d|day|night|tomorrow|week|month|year|quarter|next|last|this|spring|summer|fall|winter|autumn",
    re.IGNORECASE,
)


def partial_dates(text: str) -> tuple[str, ...]:
    """Return the words of a prompt that need the current date, in their order."""
    if _HINT.search(text) is None:
        return ()
    found: list[str] = []
    for sentence in _END.split(text):
        spans = [(match.start(), match.group()) for match in _RELATIVE.finditer(sentence)]
        if _YEAR.search(sentence) is None:
            spans += [(match.start(), match.group()) for match in _YEARLESS.finditer(sentence)]
        found += [words.rstrip(".") for _, words in sorted(spans)]
    return tuple(found)
