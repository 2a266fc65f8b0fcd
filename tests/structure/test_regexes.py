"""No regex of the source takes more than linear time, whoever wrote the text that it meets.

`re` tries every way to split a text between two repetitions that fit the same characters, and holds
the GIL while it does: one line of a log then stops every request of a process. Times are CPU times
of this thread.
"""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hillclimb.spec.backend.skypilot import _GPUS, _IMAGE, _INFRA
from hillclimb.spec.monitoring.old_metrics import RENAMED
from hillclimb.stats.trajectories.errors.wording import UNKNOWN_TOOL
from tests.structure.regexes import EVERY_WAY, Regex, attacks, find_regexes

ROOT = Path(__file__).resolve().parents[2]
SIZE = 3_000
"""Characters of a text."""
FACTOR = 4
FLOOR_S = 0.00015
"""A text of `SIZE` characters that takes less takes less than 80 ms in a log line of 64 kB, even if
the time grew with the square of its length."""
CLEARLY_LINEAR = 1.25
"""A text that takes less than this times `FACTOR` times a text of a `FACTOR`th is left at that. One
whose square share makes `FACTOR` times the text take `2 * FACTOR` times the time takes 1.33 times
here: T(n) = an + bn², with bn = a / 2 at `SIZE`."""
TOO_LONG_S = 0.2
"""Time after which a match is given up, as it may never end."""
MADE_AT_RUN_TIME: Mapping[str, tuple[str | bytes, ...]] = {
    "api/results/artifacts/log_search.py: word": (r"(?<![\w-])aa-aa(?![\w-])",),
    "hillclimb/process/redactor.py: b'|'.join(map(re.escape, forms))": (b"aaaab|aaaa|aa",),
    "hillclimb/spec/backend/skypilot.py: pattern": (_INFRA, _GPUS, _IMAGE),
    "hillclimb/spec/monitoring/old_metrics.py: regex + re.escape(rest)": tuple(
        each.pattern.pattern for each in RENAMED
    ),
    "hillclimb/stack/servers/probes.py: pattern": (r"hillclimb@[^\s@]+ ready\.$", r"Socket Mode: "),
    # A value of its module, or of one that imports it, and found there.
    "hillclimb/stats/trajectories/errors/wording.py: '|'.join(alternatives)": (),
    "hillclimb/stats/trajectories/response.py: f'</{name}>'": ("</tool_call>",),
    "trainer/attempt/scratch.py: f'{re.escape(prefix)}(\\\\d+)-'": (r"vllm\-(\d+)-",),
    "trainer/rollouts/chat/parsing.py: f'</{name}>'": (),
    "trainer/rollouts/styles/native/chat.py: f\"({'|'.join(map(re.escape, longest_first))})\"": (),
}
"""Regexes that no module-level value has, with examples of what they are made to."""


class GivenUp(Exception):
    """A match took too long."""


@contextmanager
def limited() -> Iterator[None]:
    """Give a match up after `TOO_LONG_S` seconds of CPU: `re` looks for signals as it matches."""

    def stop(*_: object) -> None:
        raise GivenUp

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, TOO_LONG_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def seconds(regex: Regex, method: str, text: Any) -> float:
    apply = getattr(regex.pattern, method)
    arguments = (text[:0], text) if method in ("sub", "subn") else (text,)
    began = time.thread_time()
    try:
        with limited():
            answer = apply(*arguments)
            if method == "finditer":
                list(answer)
    except GivenUp:
        return TOO_LONG_S
    return time.thread_time() - began


def is_slow(regex: Regex, method: str, shorter: Any, text: Any, longer: Any) -> bool:
    """Tell whether `FACTOR` times the text takes clearly more than `FACTOR` times the time."""
    if (first := seconds(regex, method, text)) < FLOOR_S or first >= TOO_LONG_S:
        return first >= TOO_LONG_S
    if first < CLEARLY_LINEAR * FACTOR * min(seconds(regex, method, shorter) for _ in range(3)):
        return False
    for _ in range(3):
        short = seconds(regex, method, text)
        long = TOO_LONG_S if short >= TOO_LONG_S else seconds(regex, method, longer)
        if long >= TOO_LONG_S:
            return True
        if long < 2 * FACTOR * short:
            return False
    return True


def faults(regex: Regex) -> Iterator[str]:
    """Yield what makes a regex slow, in words."""
    sizes = (SIZE // FACTOR, SIZE, FACTOR * SIZE)
    texts = dict.fromkeys(zip(*(attacks(regex, size) for size in sizes), strict=True))
    for method in regex.methods:
        for shorter, text, longer in texts:
            if is_slow(regex, method, shorter, text, longer):
                yield f"{regex.file}: {regex.pattern.pattern!r:.90} .{method}({text[:24]!r}…)"
                break


@cache
def found() -> tuple[list[Regex], list[str]]:
    """Look once, and not while tests are collected, which every process does."""
    return find_regexes(ROOT)


@pytest.mark.invariant("no regex of the source takes more than linear time")
def test_no_regex_of_the_source_is_slower_than_its_text_is_long() -> None:
    made = [
        Regex(place, re.compile(each), EVERY_WAY)
        for place, examples in MADE_AT_RUN_TIME.items()
        for each in examples
    ]
    assert [fault for regex in [*found()[0], *made] for fault in faults(regex)] == []


def test_every_regex_is_found_or_listed() -> None:
    regexes, local = found()
    assert sorted(set(local)) == sorted(MADE_AT_RUN_TIME)
    assert UNKNOWN_TOOL in {regex.pattern for regex in regexes}
    assert len(regexes) > 100


@pytest.mark.parametrize(
    "slow",
    [
        rb"^(?:\x1b\[[0-9;]*m)*(?:\([^)\n]*\))?(?:\x1b\[[0-9;]*m)*\s*\d{4}-",
        r"(a+)+b",
        r"<tool_call>(.*?)</tool_call>",
        r"\s+$",
        r"(?:x|xx)*y",
        r">>> ERROR_ACCUMULATOR >>>\n(?s:.*?)\n<<< ERROR_ACCUMULATOR <<<",
        r"Request failed: (.*) for self\.request_id",
    ],
)
def test_slow_regexes_are_noticed(slow: str | bytes) -> None:
    """Among them those of this repository that were slow, the first one with 7.4 s for 52 kB."""
    assert next(faults(Regex("here", re.compile(slow), ("search",))), "")
