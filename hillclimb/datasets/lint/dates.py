"""Partial dates in a prompt: dates that are ambiguous without the current date.

"March 5" needs a year, "next Friday" and "in two weeks" need today. A model without CURRENT_DATE
guesses, and a verifier that checks the full date fails it. English only, and by patterns, which may
be wrong about a sentence. Words that often mean something else ("Monday to Friday", "within 3
days", "9/11") do not match.
"""

from __future__ import annotations

import re

_MONTH = (
    r"(?:(?i:jan(?:uary)?|feb(?:ruary)?|apr(?:il)?|june?|july?|aug(?:ust)?|sept?(?:ember)?"
    r"|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)|Mar(?:ch)?|MAR(?:CH)?|May|MAY)\b\.?"
)
"""March and May count with a capital only: both are verbs too."""
_VERB_MONTH = r"(?:march|may)"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])(?:st|nd|rd|th)?\b"
_ORDINAL = r"(?:[12]?1st|2?2nd|2?3rd|31st|30th|(?:[4-9]|1\d|2[04-9])th)"
_NO_LONGER_NUMBER = r"(?![\d,.]*\d|:\d|\s*(?i:am|pm|%|°))"
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day\b"
_NUMBER = r"(?:\d+|an?|one|two|three|four|five|six|seven|eight|nine|ten|a (?:few|couple of))"
_UNIT = r"(?:day|night|week|weekend|month|year|quarter)"
_SEASON = r"(?:spring|summer|autumn|fall|winter)"
_PART_OF_DAY = r"(?:morning|afternoon|evening|night|noon)\b"
_ON = r"(?:on|by|until|till|due|starting)"
_SINCE = rf"(?:{_ON}|before|after|from|through|since|between)"
_AND = r"(?:to|and|or|until|till|through|-|–)"
_NOT_EVERY = (
    r"(?<!every )(?<!each )(?<!black )(?<!cyber )(?<!good )(?<!easter )(?<!giving )(?<!super )"
)
_ENDS = (
    r"(?=\s*(?:$|[.,;:!?)\"'\n])|\s+(?:at|and|or|to|through|until|for|from|with|in|as)\b"
    r"|\s+of\s+(?:this|next|the|each)\s+month\b)"
)
"""Text that may follow a day alone: anything else is "the 12th floor"."""
_RANGE_OF_WEEKDAYS = rf"{_WEEKDAY}\s*(?:to|through|thru|until|till|and|-|–)\s*{_WEEKDAY}"
_SHORT_DATE = r"(?:0?[1-9]|1[0-2])/(?:0?[1-9]|[12]\d|3[01])\b(?![/\d%]|\s+of\b)"

_YEARLESS = re.compile(
    rf"\b{_MONTH}\s+(?:the\s+)?{_DAY}{_NO_LONGER_NUMBER}"
    rf"|\b{_DAY}\s+(?:of\s+)?{_MONTH}"
    rf"|\b(?i:{_SINCE})\s+{_VERB_MONTH}\s+{_DAY}{_NO_LONGER_NUMBER}"
    rf"|\b(?i:{_SINCE})\s+{_SHORT_DATE}"
    rf"|\b(?i:{_ON})\s+the\s+{_ORDINAL}(?:\s*{_AND}\s+(?:the\s+)?{_ORDINAL})*{_ENDS}"
    rf"|\b(?i:from)\s+the\s+{_ORDINAL}\s*(?:to|until|till|through|-|–)\s*(?:the\s+)?{_ORDINAL}\b"
)
"""Day and month, or a day alone: complete with a year."""
_RELATIVE = re.compile(
    r"\b(?:today|tonight|tomorrow|yesterday)(?!['’]s\s+(?:world|special))\b"
    rf"|(?<!the )\b(?:next|this|last|coming|upcoming)\s+(?:{_WEEKDAY}|(?:week|weekend|month|year"
    rf"|quarter|{_SEASON})\b)"
    rf"|\b(?:this|last)\s+(?:morning|afternoon|evening|night)\b"
    rf"|\b(?:{_SINCE}|for)\s+(?:the\s+)?(?!{_RANGE_OF_WEEKDAYS}){_WEEKDAY}(?!\s+{_PART_OF_DAY}s)"
    rf"(?!\s+(?:mornings|afternoons|evenings|nights)\b)(?!\.com)"
    rf"|{_NOT_EVERY}\b(?!{_RANGE_OF_WEEKDAYS}){_WEEKDAY},?\s+(?:at\s+(?:\d|noon|midnight)"
    rf"|{_PART_OF_DAY})"
    rf"|\bin\s+{_NUMBER}\s+{_UNIT}s?\b(?!\s+of\b)"
    rf"|\b(?:in|within|over)\s+the\s+(?:next|coming)\s+{_NUMBER}\s+{_UNIT}s?\b"
    rf"|\b(?:next|past|last)\s+{_NUMBER}\s+{_UNIT}s?\b"
    r"|\b(?:in|over|during|for|from)\s+the\s+(?:past|last)\s+(?:week|month|year|quarter)\b"
    rf"|\b{_NUMBER}\s+{_UNIT}s?\s+(?:ago|from\s+(?:now|today))\b"
)
"""A day counted from today, which a year does not complete. For text in lower case."""

_YEAR = r"(?:19|20)\d\d\b(?![,.]\d|\s*(?i:dollars|usd|eur|euros|pounds|[$€£]|miles|km|sq|square))"
_DATED = re.compile(
    rf"\b{_MONTH},?\s+(?:of\s+)?{_YEAR}"
    rf"|\b(?:{_MONTH}\s+(?:the\s+)?{_DAY}|{_DAY}\s+(?:of\s+)?{_MONTH}),?\s*(?:of\s+|in\s+)?"
    rf"(?:{_YEAR}|['’]\d\d\b)"
    rf"|\b{_MONTH}\s+['’]\d\d\b"
    rf"|\b(?:19|20)\d\d([-/.])(?:0?[1-9]|1[0-2])\1(?:0?[1-9]|[12]\d|3[01])\b"
    rf"|\b\d{{1,2}}([-/.])\d{{1,2}}\2(?:19|20)?\d\d\b"
    rf"|\b(?i:in|during|the year|of the year|throughout)\s+{_YEAR}(?!-)"
)
"""A date with its year, or a year named as one: it completes the other dates of its sentence."""
_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"'])|\n+")
_PERIODS = ("day", "night", "morrow", "week", "month", "year", "quarter")
_PARTS = ("morning", "noon", "evening", "spring", "summer", "autumn", "fall", "winter")
_CALENDAR = (*_PERIODS, *_PARTS)
"""Every relative date contains one of these."""
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DIGIT = re.compile(r"\d")
_BY_NUMBER = ("/", "the ")
"""Every date without a month's name contains one of these."""


def partial_dates(text: str) -> tuple[str, ...]:
    """Return the words of a prompt that need the current date, in their order."""
    dates: list[str] = []
    for sentence in _END.split(text):
        lowered = sentence.lower()
        if len(lowered) != len(sentence):  # a few letters grow, which would shift the positions
            lowered = sentence
        spans = []
        if any(word in lowered for word in _CALENDAR):
            spans += _spans(lowered, _RELATIVE)
        if _DIGIT.search(sentence) and any(mark in lowered for mark in (*_MONTHS, *_BY_NUMBER)):
            yearless = _spans(sentence, _YEARLESS)
            if yearless and _DATED.search(sentence) is None:
                spans += yearless
        dates += _words(sentence, spans)
    return tuple(dates)


def _spans(sentence: str, pattern: re.Pattern[str]) -> list[tuple[int, int]]:
    return [match.span() for match in pattern.finditer(sentence)]


def _words(sentence: str, spans: list[tuple[int, int]]) -> list[str]:
    """Return the words at these places, in order and without those inside an earlier one."""
    words: list[str] = []
    reached = 0
    for start, end in sorted(spans):
        if start >= reached:
            words.append(sentence[start:end].rstrip("."))
            reached = end
    return words
