"""Redacts secrets in everything that leaves a machine: log lines, events, reports.

A redacted text keeps its length, so a position in a log is the same before and after.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from hillclimb.spec.hosts import FOR_RUNS

SECRET_NAMES = "HILLCLIMB_SECRET_NAMES"  # noqa: S105 (a name)
"""Variable with the comma-separated names of this process's secret variables."""
SHORTEST, SHORTEST_GUESSED = 6, 8
"""Least length (characters) of a redacted value: of a variable listed in `SECRET_NAMES`, and of one
whose name only looks secret. Shorter values occur in ordinary text."""
_LOOKS_SECRET = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|PASSWD|PASS|PASSPHRASE|KEY|CREDENTIALS)$"
    r"|APIKEY$|(?:DATABASE|REDIS|BROKER)_URL$|_DSN$",
    re.IGNORECASE,
)


class Redactor:
    """Replaces known secret values with asterisks, also as JSON, URL and base64 write them."""

    def __init__(self, values: tuple[str, ...] = ()) -> None:
        forms = sorted({form for value in values for form in _forms(value)}, key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, forms))) if forms else None

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> Redactor:
        """Return a redactor of the variables listed as secret or with secret-like names."""
        named = {name.strip() for name in environ.get(SECRET_NAMES, "").split(",")}
        named |= {name for name in environ if name.startswith(FOR_RUNS)}
        guessed = {name for name in environ if _LOOKS_SECRET.search(name)} - named
        values = [environ[name] for name in named if name in environ]
        values += [environ[name] for name in guessed if len(environ[name]) >= SHORTEST_GUESSED]
        return cls(tuple(values))

    def raw(self, data: bytes) -> bytes:
        """Return `data` with asterisks in the places of secrets."""
        return self._pattern.sub(_stars, data) if self._pattern else data

    def text(self, text: str) -> str:
        """Return `text` with asterisks in the places of secrets."""
        if self._pattern is None:
            return text
        return self.raw(text.encode(errors="surrogatepass")).decode(errors="replace")

    def json_line(self, line: bytes) -> bytes:
        """Return a redacted line that is still JSON: a number that looks secret stays."""
        redacted = self.raw(line)
        if redacted == line or _is_json(redacted):
            return redacted
        return json.dumps(self._strings(json.loads(line))).encode() + b"\n"

    def _strings(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._strings(each) for each in value]
        if isinstance(value, dict):
            return {key: self._strings(each) for key, each in value.items()}
        return value


def with_secrets(environ: Mapping[str, str], secrets: Mapping[str, str]) -> dict[str, str]:
    """Return the variables and the secrets, whose names are listed in `SECRET_NAMES`."""
    if not secrets:
        return dict(environ)
    named = [name for name in environ.get(SECRET_NAMES, "").split(",") if name]
    return {**environ, **secrets, SECRET_NAMES: ",".join(sorted({*named, *secrets}))}


NOTHING_SECRET = Redactor()
"""Redacts nothing."""


def _forms(value: str) -> Iterator[bytes]:
    """Yield the written forms of a value, and of each line of a multi-line one."""
    for part in {value, *value.splitlines()}:
        if len(part) < SHORTEST:
            continue
        yield part.encode(errors="surrogateescape")
        yield repr(part)[1:-1].encode(errors="surrogateescape")
        yield from _json_forms(part)
        yield from _url_forms(part)
    if len(value) >= SHORTEST:
        raw = value.encode(errors="surrogateescape")
        for written in (base64.b64encode(raw), base64.urlsafe_b64encode(raw)):
            # Padding may be left out.
            yield from {written, written.rstrip(b"=")}


def _json_forms(part: str) -> Iterator[bytes]:
    """Yield the value as JSON, and as JSON within JSON, as an error quotes a payload."""
    for is_ascii in (True, False):
        once = json.dumps(part, ensure_ascii=is_ascii)[1:-1]
        for each in (once, json.dumps(once, ensure_ascii=is_ascii)[1:-1]):
            yield each.encode(errors="surrogateescape")


def _url_forms(part: str) -> Iterator[bytes]:
    """Yield the value URL-quoted: as component, path and form, in both cases of hex digits."""
    for each in (quote(part, safe="", errors="replace"), quote(part, errors="replace")):
        yield from (each.encode(), _lowercase_digits(each))
    form = quote_plus(part, errors="replace")
    yield from (form.encode(), _lowercase_digits(form))


def _lowercase_digits(quoted: str) -> bytes:
    return re.sub("%[0-9A-F]{2}", lambda match: match[0].lower(), quoted).encode()


def _stars(match: re.Match[bytes]) -> bytes:
    return b"*" * len(match[0])


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except ValueError:
        return False
    return True
