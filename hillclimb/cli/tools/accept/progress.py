"""Prints a ladder as it goes: checks under way on standard error, their ends on standard output."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.markup import escape
from rich.status import Status

from hillclimb.cli.terminal.console import err, out, print_text
from hillclimb.process.acceptance.ladder import CheckObservation
from hillclimb.process.acceptance.targets import FACTS, Target

LONGEST_IN_SECONDS = 120.0


class Progress:
    """Prints a ladder's checks; nothing where the whole ladder becomes one JSON document."""

    def __init__(self, *, is_silent: bool) -> None:
        self._is_silent = is_silent
        self._status: Status | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give the terminal back, also after Ctrl-C."""
        self._end_status()

    def announce(self, target: Target) -> None:
        """Say what is about to be checked."""
        self._note(f"{target}: {FACTS[target].about}")

    def locate(self, address: str) -> None:
        """Say which server is checked."""
        self._note(f"      at {address}")

    def begin(self, name: str, limit_s: float) -> None:
        """Say which check is under way: on a terminal until it ends."""
        text = f"{name}, for {_duration(limit_s)} at most"
        if self._is_silent:
            return
        if err.is_terminal:
            self._status = err.status(escape(text))
            self._status.start()
        else:
            self._note(f"  ..  {text}")

    def end(self, check: CheckObservation) -> None:
        """Print what a check saw, and its remedy after a failure."""
        self._end_status()
        if self._is_silent:
            return
        print_check("ok" if check.passed else "fail", check.name, check.seen, check.seconds)
        if check.remedy:
            print_text(f"      {check.remedy}", style="dim")

    def _note(self, text: str) -> None:
        if not self._is_silent:
            err.print(text, style="dim", markup=False, soft_wrap=True)

    def _end_status(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None


def print_check(level: str, name: str, seen: str, seconds: float) -> None:
    """Print one check of a ladder."""
    style = "green" if level == "ok" else "red"
    out.print(f"[{style}]{level:>4}[/{style}]  ", end="")
    print_text(f"{name}: {seen} ({seconds:.1f} s)")


def _duration(seconds: float) -> str:
    if seconds <= LONGEST_IN_SECONDS:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min"
