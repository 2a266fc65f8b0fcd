"""The forms of a spec's texts, in words instead of regular expressions."""

from __future__ import annotations

from collections.abc import Mapping

WRITTEN_FORMS: Mapping[str, str] = {
    r"^[A-Za-z0-9][A-Za-z0-9 ._:-]{0,119}$": "letters, digits, spaces, '.', '_', ':' and '-',"
    " starting with a letter or digit, at most 120 of them",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$": "letters, digits, '.', '_' and '-', starting with a"
    " letter or digit, at most 128 of them",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$": "letters, digits, '.', '_' and '-', starting with a"
    " letter or digit, at most 64 of them",
    r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,63}$": "letters, digits, '.', '_', ':', '/' and '-', starting"
    " with a letter or digit, at most 64 of them",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$": "letters, digits, '.', '_' and '-', starting with a"
    " letter or digit, at most 63 of them",
    r"^[A-Za-z][A-Za-z0-9._-]{0,63}$": "letters, digits, '.', '_' and '-', starting with a letter,"
    " at most 64 of them",
    r"^[a-z][a-z0-9_]{0,31}$": "small letters, digits and '_', starting with a letter, at most 32"
    " of them",
    r"^[a-z0-9][a-z0-9-]{0,63}$": "small letters, digits and '-', at most 64 of them",
    r"^[a-z0-9][a-z0-9-]{0,39}$": "small letters, digits and '-', at most 40 of them",
    r"^https?://[^/?#\s@]+(/[^?#\s]*)?$": "an address such as https://HOST/PATH, without user,"
    " query and fragment",
    r"^https?://[^\s/@?#]+(/[^\s@?#]*)?$": "an address such as https://HOST/PATH, without user,"
    " query and fragment",
    r"^(http|ws)s?://[^/?#\s@]+(/[^?#\s]*)?$": "an address such as http://HOST:PORT/PATH, without"
    " user, query and fragment",
    r"^run_[0-9a-z]{10,40}$": "the id of a run, such as run_06dzk3m8v5q2w9x4t7r1c0n6ab",
    r"^[A-Za-z_][A-Za-z0-9_]{0,127}$": "the name of an environment variable: letters, digits and"
    " '_', not starting with a digit",
    r"^[A-Za-z0-9-]{1,64}$": "letters, digits and '-', at most 64 of them",
    r"^[#CGD]?[A-Za-z0-9._-]{1,80}$": "a Slack channel such as #training, or its id",
    r"^[^\s\x00-\x1f]+$": "a name without spaces",
    r"^/[^\s'\"]+$": "an absolute path without spaces and quotes",
}
"""By pattern, as the fields of specs have them; a test compares the two."""
_WHOLE = "a whole number without a unit, such as 8"
_NUMBER = "a number with a decimal point and without a unit, such as 0.5"
_LIST = "a list, such as [a, b]"
VALUE_FORMS: Mapping[str, str] = {
    "int_type": _WHOLE,
    "int_parsing": _WHOLE,
    "int_from_float": _WHOLE,
    "float_type": _NUMBER,
    "float_parsing": _NUMBER,
    "list_type": _LIST,
    "tuple_type": _LIST,
}
"""By the type of pydantic's error, whose own words repeat themselves and not the value."""


BOUNDS: Mapping[str, str] = {
    "greater_than": "a number greater than {gt}",
    "greater_than_equal": "{ge} or more",
    "less_than": "a number less than {lt}",
    "less_than_equal": "{le} or less",
}
"""By the type of pydantic's error, with the bound that its context has."""


def written_form(pattern: str) -> str | None:
    """Return what a text with this pattern looks like, in words; None if nobody wrote them down."""
    return WRITTEN_FORMS.get(pattern)
