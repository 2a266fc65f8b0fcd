"""Parses SkyPilot's log of a launch into the offers it tried, in order, with their outcomes.

A launch that succeeded has no other record of its failovers. The shapes are those of skypilot
0.14.1, recorded in tests/worker/skypilot/recorded. Pure: nothing here imports sky.

The lines that count, in the order of one try: a table of prices (`_ROW`), `Launching on …`
(`_LAUNCHING`), warnings with a time (`_WARNING`), then an exception (`_FAULT`) or `Instance is up.`
(`_UP`). Machines that are up may still be given up while SkyPilot's runtime is installed on them;
only `Cluster launched:` or `Job submitted` (`_LAUNCHED`) is final.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from datetime import datetime

from worker.skypilot.port import OfferOutcome, TriedOffer

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
_INELIGIBLE = frozenset({"NotSupportedError", "ProvisionUnsupportedError"})
MESSAGE_CHARACTERS = 500
_USER_INFO = re.compile(r"//[^/\s]*@")
"""User and password of an address."""


def plain(text: str) -> str:
    """Return text without terminal codes and Rich markup."""
    return _MARKUP.sub("", _TERMINAL_CODE.sub("", text))


def sentence(text: str) -> str:
    """Return text in one line of at most 500 characters that may be shown to users.

    User and password of addresses are removed: SkyPilot's errors quote its server's in full.
    """
    line = " ".join(_USER_INFO.sub("//", plain(text)).split())
    return line if len(line) <= MESSAGE_CHARACTERS else f"{line[: MESSAGE_CHARACTERS - 1]}…"


@dataclass(slots=True)
class _Parser:
    """Parser state: prices of the newest table, offers so far, and the offer being tried."""

    began_at: datetime
    prices: dict[str, tuple[str | None, float | None]] = field(default_factory=dict)
    """Machine and USD an hour, by `INFRA/REGION`."""
    offers: list[TriedOffer] = field(default_factory=list)
    current: TriedOffer | None = None
    started_at: datetime | None = None
    """Start of the current offer, from the newest timed line before it."""
    logged_at: datetime | None = None
    """Time of the newest warning, the only lines with a time."""
    warning: str | None = None
    is_launched: bool = False

    def read(self, line: str) -> None:
        """Parse one line."""
        if match := _LAUNCHING.search(line):
            self._begin(match["infra"], match["region"])
        elif match := _WARNING.match(line):
            self.warning, self.logged_at = match["message"], self._time(match["at"])
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
        abandoned = self._pop_abandoned()
        if abandoned is not None:
            message = sentence(self.warning or "its machines came up and were abandoned")
            self._end(replace(abandoned, outcome=OfferOutcome.FAILED, message=message))
        sku, usd = self.prices.get(f"{infra}/{region}", (None, None))
        self.current = TriedOffer(
            infra=infra.lower(), region=region, sku=sku, hourly_usd=usd, outcome=OfferOutcome.FAILED
        )
        self.started_at, self.warning = self.logged_at or self.began_at, None

    def _fault(self, kind: str, message: str) -> None:
        """End the current offer with an exception; without one, an offer that was up."""
        outcome = (
            OfferOutcome.REFUSED if kind == "ResourcesUnavailableError" else OfferOutcome.FAILED
        )
        offer = self.current
        if kind in _INELIGIBLE:
            outcome = OfferOutcome.INELIGIBLE
            cloud = _UNSUPPORTED.search(message)
            name = cloud["cloud"].replace(" ", "").lower() if cloud else "unknown"
            offer = offer or TriedOffer(infra=name, outcome=outcome)
        offer = offer or self._pop_abandoned()
        if offer is None:
            return
        # The warning before an exception has the cloud's reason; the exception a generic text.
        reason = sentence(self.warning or message)
        self._end(replace(offer, outcome=outcome, error_class=kind, message=reason))

    def _pop_abandoned(self) -> TriedOffer | None:
        """Remove and return the last offer if its machines came up but the launch went on."""
        is_up = bool(self.offers) and self.offers[-1].outcome is OfferOutcome.UP
        return self.offers.pop() if is_up and not self.is_launched else None

    def _succeed(self) -> None:
        if self.current is not None:
            self._end(replace(self.current, outcome=OfferOutcome.UP))

    def _end(self, offer: TriedOffer) -> None:
        """Store an offer with its duration, where the log has times around it."""
        seconds = None
        if (
            self.started_at is not None
            and self.logged_at is not None
            and self.logged_at > self.started_at
        ):
            seconds = round((self.logged_at - self.started_at).total_seconds(), 1)
        self.offers.append(replace(offer, seconds=seconds))
        self.current = None

    def _time(self, text: str) -> datetime | None:
        """Parse a time without a year, which is the launch's; None if before the launch.

        A time before the launch is from another machine's clock.
        """
        time = datetime.strptime(  # noqa: DTZ007 - compared with a local time
            f"{self.began_at.year}-{text}", "%Y-%m-%d %H:%M:%S.%f"
        )
        return time if time >= self.began_at.replace(microsecond=0) else None


def parse_offers(
    text: str, *, began_at: datetime, ended_at: datetime | None = None
) -> tuple[TriedOffer, ...]:
    """Return the offers of a launch in the order in which they were tried.

    `began_at` and `ended_at` are naive local times of the API server's machine; offers get their
    durations from these and from the times of warnings.
    """
    parser = _Parser(began_at=began_at)
    for line in plain(text).splitlines():
        parser.read(line.rstrip())
    if parser.offers and ended_at is not None and parser.offers[-1].outcome is OfferOutcome.UP:
        since = parser.logged_at or began_at
        seconds = round((ended_at - since).total_seconds(), 1)
        parser.offers[-1] = replace(parser.offers[-1], seconds=seconds)
    return tuple(parser.offers)
