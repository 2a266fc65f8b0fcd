"""Wrong keys: how many an address may send, and which of them the audit log gets.

An address is not a person: everybody behind a proxy may have the same. So a key that was right
before in this process is never refused for what others of its address sent, and a key whose first
characters are those of a valid one is still looked at, a few times a minute. What remains refused
without a look at the database are guesses.
"""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address, ip_network

from api.http.live.serving.bucket_table import BucketTable
from api.http.requests.limits.buckets import Buckets
from api.tables.access.errors import RateExceeded
from api.tables.access.identity import PREFIX_CHARS

BURST_S = 60.0
"""A quiet address may send the wrong keys of this many seconds at once."""
PREFIXES_TTL_S = 5.0
"""How old the prefixes of valid keys may be that are compared while an address is refused."""
PER_PREFIX = 10
"""Wrong keys per minute with the prefix of one valid key, from an address that is refused."""
MAX_KNOWN = 10_000
"""Keys that are remembered as right, by their digests, and refusals that wait for a record."""
RECORD_EVERY_S = 600.0
"""The audit log gets one record for the wrong keys of one address, or of one key, in this time."""


@dataclass(slots=True)
class _Refusals:
    """Wrong keys of one address, or of one key, since the last record about them."""

    recorded_at: float
    number: int


@dataclass(slots=True, kw_only=True)
class WrongKeys:
    """Right and wrong keys, by digests alone.

    Wrong ones are counted for all API processes of one address; what was right, and what the audit
    log has, each process remembers for itself.
    """

    per_minute: int
    table: BucketTable = field(default_factory=BucketTable.private)
    clock: Callable[[], float] = time.monotonic
    _by_address: Buckets = field(init=False)
    _by_prefix: Buckets = field(init=False)
    _known: OrderedDict[str, None] = field(default_factory=OrderedDict)
    _prefixes: frozenset[str] = frozenset()
    _prefixes_at: float = -math.inf
    _refusals: OrderedDict[str, _Refusals] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._by_address = self._buckets(self.per_minute, "wrong keys")
        self._by_prefix = self._buckets(PER_PREFIX, "prefixes")

    def _buckets(self, per_minute: float, kind: str) -> Buckets:
        return Buckets(
            per_minute=per_minute, burst_s=BURST_S, table=self.table, kind=kind, clock=self.clock
        )

    def check(self, address: str, secret: str) -> None:
        """Raise RateExceeded where the address has sent too many and this one may be a guess."""
        wait_s = self._by_address.wait_s(address)
        if wait_s == 0 or self._is_known(secret):
            return
        prefix = secret[:PREFIX_CHARS]
        if prefix in self._prefixes and self._by_prefix.wait_s(f"{address} {prefix}") == 0:
            return
        raise RateExceeded(
            f"Too many wrong keys came from this address: wait {math.ceil(wait_s)} s.",
            retry_after_s=wait_s,
        )

    def needs_prefixes(self, address: str) -> bool:
        """Tell whether `learn` has to be called before `check`; True at most once per interval."""
        if self._by_address.wait_s(address) == 0:
            return False
        with self._lock:
            is_old = self.clock() - self._prefixes_at > PREFIXES_TTL_S
            if is_old:
                self._prefixes_at = self.clock()
            return is_old

    def learn(self, prefixes: Iterable[str]) -> None:
        """Note the prefixes of all valid keys."""
        self._prefixes = frozenset(prefixes)

    def right(self, secret: str) -> None:
        """Note that a key or token is valid."""
        with self._lock:
            digest = _digest(secret)
            self._known[digest] = None
            self._known.move_to_end(digest)
            if len(self._known) > MAX_KNOWN:
                self._known.popitem(last=False)

    def wrong(self, address: str, secret: str) -> None:
        """Note that a key or token is not valid, or not any more."""
        with self._lock:
            self._known.pop(_digest(secret), None)
        self._by_address.take(address)
        prefix = secret[:PREFIX_CHARS]
        if prefix in self._prefixes:
            self._by_prefix.take(f"{address} {prefix}")

    def number_to_record(self, about: str) -> int:
        """Return how many refusals a record about this one has to name; 0 for no record yet."""
        with self._lock:
            now = self.clock()
            refusals = self._refusals.setdefault(about, _Refusals(-math.inf, 0))
            self._refusals.move_to_end(about)
            if len(self._refusals) > MAX_KNOWN:
                self._refusals.popitem(last=False)
            refusals.number += 1
            if now - refusals.recorded_at < RECORD_EVERY_S:
                return 0
            number, refusals.number, refusals.recorded_at = refusals.number, 0, now
            return number

    def _is_known(self, secret: str) -> bool:
        with self._lock:
            return _digest(secret) in self._known


def address_of(client: tuple[str, int] | None) -> str:
    """Return the address that a request came from, of IPv6 the network of one customer."""
    host = client[0] if client else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    is_network = isinstance(address, IPv6Address) and address.ipv4_mapped is None
    return str(ip_network((address, 64), strict=False)) if is_network else str(address)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
