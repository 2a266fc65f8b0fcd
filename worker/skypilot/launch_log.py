"""Reads what SkyPilot wrote while it launched: which offers it tried, in order, and what each said.

A launch that succeeded tells its failures nowhere else. The shapes are those of skypilot 0.14.1,
recorded in tests/worker/clusters/recorded. Pure: nothing here imports sky.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime

from worker.clusters.base import OfferTried, Outcome

_TERMINAL_CODE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_MARKUP = re.compile(r"\[/?(?:bold|dim|red|green|yellow|blue|cyan|magenta|underline|/)[\w ]*\]")
_ROW = re.compile(r"^ (?P<infra>\S+ \([^)]*\)|\S+) {2,}(?P<cells>\S.*\S|\S)\s*$")
_LAUNCHING = re.compile(
    r"Launching (?:\d+ \w+ )?on (?P<infra>\S+)(?: (?P<region>[^\s(]+))?(?: \(|\.)"
)
_FAULT = re.compile(r"^(?:[\w.]+\.)?(?P<kind>[A-Z]\w*(?:Error|Exception)): (?P<message>.*)")
_WARNING = re.compile(
    r"^[WE] (?P<at>\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}) (?:PID=\d+ )?\S+\] (?P<message>.*)"
)
_UNSUPPORTED = re.compile(r"not supported by (?P<cloud>[A-Za-z ]+)")
_UP = ("Instance is up.", "Instances are up.")
_LAUNCHED = ("Cluster launched:", "Job submitted")
"""Machines that are up are not yet had: SkyPilot's runtime is set up on them, which may fail."""
_INELIGIBLE = frozenset({"NotSupportedError", "ProvisionUnsupportedError"})
MESSAGE_CHARACTERS = 500
_WHO = re.compile(r"//[^/\s]*@")
"""User and password of an address."""


def plain(text: str) -> str:
    """Return text as SkyPilot would print it to a file: without terminal codes and Rich markup."""
    return _MARKUP.sub("", _TERMINAL_CODE.sub("", text))


def sentence(text: str) -> str:
    """Return text in one line of at most 500 characters, as it may be shown to everybody.

    Without user and password of addresses: SkyPilot's errors name that of its server in full.
    """
    line = " ".join(_WHO.sub("//", plain(text)).split())
    return line if len(line) <= MESSAGE_CHARACTERS else f"{line[: MESSAGE_CHARACTERS - 1]}…"


@dataclass(slots=True)
class _Reader:
    """State while lines are read: prices of the newest table, and the offer that is under way."""

    began_at: datetime
    prices: dict[str, tuple[str | None, float | None]] = field(default_factory=dict)
    """Machine and USD an hour by `infra (region)`."""
    offers: list[OfferTried] = field(default_factory=list)
    current: OfferTried | None = None
    since: datetime | None = None
    heard_at: datetime | None = None
    warning: str | None = None
    is_launched: bool = False

    def take(self, line: str) -> None:
        """Read one line."""
        if match := _LAUNCHING.search(line):
            self._begin(match["infra"], match["region"])
        elif match := _WARNING.match(line):
            self.warning, self.heard_at = match["message"], self._time(match["at"])
        elif match := _FAULT.match(line):
            self._fault(match["kind"], match["message"])
        elif any(words in line for words in (*_UP, *_LAUNCHED)):
            self._succeed()
            self.is_launched |= any(words in line for words in _LAUNCHED)
        elif match := _ROW.match(line):
            self._price(match["infra"], match["cells"])

    def _price(self, infra: str, cells: str) -> None:
        columns = re.split(r" {2,}", cells)
        usd = next((c for c in reversed(columns) if re.fullmatch(r"\d+(\.\d+)?", c)), None)
        if len(columns) >= 4 and usd is not None:
            sku = None if columns[0] == "-" else columns[0]
            self.prices[infra.replace(" (", "/").rstrip(")")] = (sku, float(usd))

    def _begin(self, infra: str, region: str | None) -> None:
        given_up = self._given_up()
        if given_up is not None:
            message = sentence(self.warning or "its machines were up, and were given up")
            self._end(replace(given_up, outcome=Outcome.FAILED, message=message))
        sku, usd = self.prices.get(f"{infra}/{region}", (None, None))
        self.current = OfferTried(
            infra=infra.lower(), region=region, sku=sku, hourly_usd=usd, outcome=Outcome.FAILED
        )
        self.since, self.warning = self.heard_at or self.began_at, None

    def _fault(self, kind: str, message: str) -> None:
        outcome = Outcome.REFUSED if kind == "ResourcesUnavailableError" else Outcome.FAILED
        tried = self.current
        if kind in _INELIGIBLE:
            outcome = Outcome.INELIGIBLE
            cloud = _UNSUPPORTED.search(message)
            name = cloud["cloud"].replace(" ", "").lower() if cloud else "unknown"
            tried = tried or OfferTried(infra=name, outcome=outcome)
        tried = tried or self._given_up()
        if tried is None:
            return
        said = sentence(self.warning or message)
        self._end(replace(tried, outcome=outcome, error_class=kind, message=said))

    def _given_up(self) -> OfferTried | None:
        """Take back the offer whose machines were up, where the launch went on without them."""
        is_up = bool(self.offers) and self.offers[-1].outcome is Outcome.UP
        return self.offers.pop() if is_up and not self.is_launched else None

    def _succeed(self) -> None:
        if self.current is not None:
            self._end(replace(self.current, outcome=Outcome.UP))

    def _end(self, tried: OfferTried) -> None:
        seconds = None
        if self.since is not None and self.heard_at is not None and self.heard_at > self.since:
            seconds = round((self.heard_at - self.since).total_seconds(), 1)
        self.offers.append(replace(tried, seconds=seconds))
        self.current = None

    def _time(self, text: str) -> datetime | None:
        """The year is the launch's; a time before the launch is another machine's clock."""
        found = datetime.strptime(  # noqa: DTZ007 - compared with a local time
            f"{self.began_at.year}-{text}", "%Y-%m-%d %H:%M:%S.%f"
        )
        return found if found >= self.began_at.replace(microsecond=0) else None


def offers_tried(
    text: str, *, began_at: datetime, ended_at: datetime | None = None
) -> tuple[OfferTried, ...]:
    """Return the offers of a launch that came to an end, in the order in which they were tried.

    `began_at` and `ended_at` are naive times of the API server's machine; by them and by the times
    of warnings an offer gets its seconds.
    """
    reader = _Reader(began_at=began_at)
    for line in plain(text).splitlines():
        reader.take(line.rstrip())
    if reader.offers and ended_at is not None and reader.offers[-1].outcome is Outcome.UP:
        since = reader.heard_at or began_at
        seconds = round((ended_at - since).total_seconds(), 1)
        reader.offers[-1] = replace(reader.offers[-1], seconds=seconds)
    return tuple(reader.offers)
