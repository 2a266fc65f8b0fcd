"""Allocation of cache rows to sessions and their shared prefixes; no tensors here."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True)
class Prefix:
    """Tokens shared by the sessions of one group; computed once."""

    key: str
    row: int
    token_ids: tuple[int, ...]
    num_computed: int = 0
    num_users: int = 0

    @property
    def is_ready(self) -> bool:
        """True once all its keys and values are in the cache."""
        return self.num_computed == len(self.token_ids)


@dataclass(slots=True, kw_only=True)
class CachedSession:
    """One trajectory: a shared prefix and the tokens computed after it."""

    prefix: Prefix
    row: int
    has_state: bool
    """The row has a state of linear attention, which is that of all computed tokens."""
    token_ids: list[int] = field(default_factory=list)

    def match(self, prompt_ids: Sequence[int]) -> list[int] | None:
        """Return the prompt's tokens still to be computed; drop cached ones that differ from it.

        None when the prompt does not even start with the prefix. At least the last token is
        always computed again, because its hidden state is what the next token is drawn from.
        """
        start = len(self.prefix.token_ids)
        if len(prompt_ids) <= start or tuple(prompt_ids[:start]) != self.prefix.token_ids:
            return None
        suffix = list(prompt_ids[start:])
        # Positions behind `keep` stay in the row and are overwritten: the masks end before them.
        keep = min(len(self.token_ids), len(suffix) - 1)
        if suffix[:keep] != self.token_ids[:keep]:
            keep = next(i for i in range(keep) if suffix[i] != self.token_ids[i])
        if self.has_state and keep < len(self.token_ids):
            # A state cannot be cut back to fewer tokens: start over from the prefix's.
            keep = 0
        del self.token_ids[keep:]
        return suffix[keep:]


class Sessions:
    """Allocates cache rows: prefixes take rows 0 ... n-1, sessions n ... 2n-1, lowest first.

    Lowest first keeps the rows in use together, because attention walks over whole ranges.
    """

    def __init__(self, num_rows: int, *, has_states: bool = False) -> None:
        """Start with every row free; `has_states` is that of each `CachedSession`."""
        self._num_rows, self._has_states = num_rows, has_states
        self.clear()

    def clear(self) -> None:
        """Free every row."""
        self._free_prefix_rows = list(range(self._num_rows))
        self._free_rows = list(range(self._num_rows, 2 * self._num_rows))
        self._prefixes: dict[str, Prefix] = {}
        self._sessions: dict[str, CachedSession] = {}

    def find(self, name: str) -> CachedSession | None:
        """Return the session of that name, marked as most recently used."""
        session = self._sessions.pop(name, None)
        if session is not None:
            self._sessions[name] = session
        return session

    def open(self, name: str, prompt_ids: Sequence[int], prefix_key: str) -> CachedSession | None:
        """Start a session; None when every row is in use.

        The prefix of a key is the prompt of its first session, without the last token. A prompt
        that does not extend it gets a prefix of its own.
        """
        if not self._free_rows:
            return None
        prefix = self._prefixes.get(prefix_key)
        if prefix is not None and not _extends(prompt_ids, prefix.token_ids):
            # A key that no other session uses: `\0` occurs in no real key.
            prefix_key = f"{prefix_key}\0{name}"
            prefix = None
        if prefix is None:
            prefix = Prefix(
                key=prefix_key,
                row=heapq.heappop(self._free_prefix_rows),
                token_ids=tuple(prompt_ids[:-1]),
            )
            self._prefixes[prefix_key] = prefix
        prefix.num_users += 1
        session = CachedSession(
            prefix=prefix, row=heapq.heappop(self._free_rows), has_state=self._has_states
        )
        self._sessions[name] = session
        return session

    def release(self, name: str) -> None:
        """Free a session's row, and its prefix's when it was the last user."""
        session = self._sessions.pop(name, None)
        if session is None:
            return
        heapq.heappush(self._free_rows, session.row)
        prefix = session.prefix
        prefix.num_users -= 1
        if not prefix.num_users:
            del self._prefixes[prefix.key]
            heapq.heappush(self._free_prefix_rows, prefix.row)

    def release_oldest(self) -> None:
        """Evict the least recently used session; it is computed again if it continues.

        The dict is in order of use: `find` moves a session to the end.
        """
        self.release(next(iter(self._sessions)))


def _extends(prompt_ids: Sequence[int], prefix_ids: tuple[int, ...]) -> bool:
    size = len(prefix_ids)
    return len(prompt_ids) > size and tuple(prompt_ids[:size]) == prefix_ids
