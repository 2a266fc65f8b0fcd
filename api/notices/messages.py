"""Builds Slack messages from facts: Block Kit and fallback text, as pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from hillclimb.protocol.payloads.events import GuardTripped

MAX_ENVS, MAX_TABLE = 20, 2900
"""Rows and characters of a table; Slack limits a section to 3000 characters."""

STATUS_EMOJI = {
    "succeeded": ":white_check_mark:",
    "failed": ":x:",
    "cancelled": ":no_entry_sign:",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Facts about a run that every message has."""

    run_id: str
    name: str
    url: str
    total_steps: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtN:
    """pass@n with its interval (shares in [0, 1]); n is the number of rollouts per task."""

    n: int
    rate: float | None
    low: float
    high: float
    before: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RateLine:
    """One row of the table: a pass@1 with its n and interval (shares in [0, 1])."""

    label: str
    n: int
    rate: float | None
    low: float | None
    high: float | None
    before: float | None = None
    verdict: str | None = None
    at_n: AtN | None = None
    """pass@n beside it, where tasks were sampled n times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """The body of `chat.postMessage`, without channel and thread."""

    text: str
    blocks: Sequence[Mapping[str, Any]]


def started(run: RunFacts, *, model: str, env_keys: Sequence[str], engine: str) -> Message:
    """Return the message that opens the run's thread."""
    return Message(
        text=f"Run {run.name} started ({run.total_steps} steps)",
        blocks=(
            _header(f"▶ {run.name} started"),
            _fields(
                ("Run", _link(run)),
                ("Model", _escape(model)),
                ("Steps", str(run.total_steps)),
                ("Environments", _escape(", ".join(env_keys))),
            ),
            _context(f"engine {_escape(engine)}"),
        ),
    )


def evaluated(
    run: RunFacts,
    *,
    step: int,
    decoding: str,
    lines: Sequence[RateLine],
    breakdowns: Mapping[str, Sequence[RateLine]] = MappingProxyType({}),
    early_stop: str | None = None,
) -> Message:
    """Return the message about an evaluation with one decoding; the last line is overall.

    `breakdowns` are further tables by their titles; `early_stop` tells how the evaluation ended
    before all of its tasks.
    """
    overall = _headline(lines[-1]) if lines else "no outcomes"
    return Message(
        text=f"{run.name}: eval at step {step} of {run.total_steps}, {decoding}: {overall}",
        blocks=(
            _section(
                f"*Eval at step {step}* of {run.total_steps}, `{_escape(decoding)}`: *{overall}*"
            ),
            _section(_table(lines)),
            *(_section(f"by {title}\n{_table(rows)}") for title, rows in breakdowns.items()),
            *([_context(_escape(early_stop))] if early_stop else []),
            _context(f"pass@1 with 95 % intervals, n graded rollouts · {_link(run)}"),
        ),
    )


def budget(run: RunFacts, *, sentence: str) -> Message:
    """Return the message about the used share of a budget."""
    return Message(
        text=f"{run.name}: {sentence}",
        blocks=(
            _section(f":moneybag: *{_escape(run.name)}*: {_escape(sentence)}"),
            _context(f"extend it with `hillclimb budget {run.run_id} --add-usd` · {_link(run)}"),
        ),
    )


def warning(run: RunFacts, *, sentence: str) -> Message:
    """Return the message about a problem that a person has to fix."""
    return Message(
        text=f"{run.name}: {sentence}",
        blocks=(
            _section(f":warning: *{_escape(run.name)}*: {_escape(sentence)}"),
            _context(_link(run)),
        ),
    )


def guard(run: RunFacts, trip: GuardTripped) -> Message:
    """Return the message about a guard that tripped, with its effect on the run."""
    effect = {"alert": "The run goes on.", "pause": "The run pauses.", "stop": "The run ends."}
    return Message(
        text=f"{run.name}: guard {trip.message}",
        blocks=(
            _section(
                f":vertical_traffic_light: *{_escape(run.name)}*, step {trip.step}: guard"
                f" `{_escape(trip.guard)}` tripped. {effect[trip.action]}"
            ),
            _section(_escape(trip.evidence.message)),
            _context(f"all guards: `hillclimb guards {run.run_id}` · {_link(run)}"),
        ),
    )


def machines(run: RunFacts, *, status: str, reason: str, detail: str) -> Message:
    """Return the message about a run that lost its cluster, or was paused by a limit."""
    emoji = ":arrows_counterclockwise:" if status == "recovering" else ":double_vertical_bar:"
    adds = detail.strip().rstrip(".") not in reason
    return Message(
        text=f"Run {run.name} is {status}: {reason}",
        blocks=(
            _section(f"{emoji} *{_escape(run.name)}* is {_escape(status)}. {_escape(reason)}"),
            *([_section(_escape(detail))] if detail and adds else []),
            _context(_link(run)),
        ),
    )


def ended(
    run: RunFacts,
    *,
    status: str,
    reason: str,
    detail: str,
    tables: Mapping[str, Sequence[RateLine]],
) -> Message:
    """Return the message about the end of a run, with first and last evaluation per decoding."""
    emoji = STATUS_EMOJI.get(status, ":grey_question:")
    tables_blocks = [
        block
        for decoding, lines in tables.items()
        for block in (_section(f"`{_escape(decoding)}`"), _section(_table(lines)))
    ]
    facts = [("Run", _link(run)), ("End", _escape(reason))]
    return Message(
        text=f"Run {run.name} {status}: {reason}",
        blocks=(
            _section(f"{emoji} *{_escape(run.name)}* {_escape(status)}"),
            _fields(*facts),
            *([_section(_escape(detail))] if detail else []),
            *tables_blocks,
        ),
    )


def _table(lines: Sequence[RateLine]) -> str:
    """Return the table as a code block with aligned columns."""
    if not lines:
        return "no outcomes"
    width = max(len(line.label) for line in lines)
    longest = max(len(_escape(_row(line, width))) for line in lines)
    most = max(2, min(MAX_ENVS, MAX_TABLE // (longest + 1) - 1))
    visible = [*lines[: most - 1], lines[-1]] if len(lines) > most else lines
    rows = [_row(line, width) for line in visible]
    hidden = len(lines) - len(visible)
    if hidden:
        rows.insert(-1, f"… and {hidden} more environments")
    return "```\n" + "\n".join(_escape(row) for row in rows) + "\n```"


def _row(line: RateLine, width: int) -> str:
    before = f"{_share(line.before):>7} → " if line.before is not None else ""
    interval = f"[{_share(line.low)}, {_share(line.high)}]"
    verdict = f"  {line.verdict}" if line.verdict else ""
    return (
        f"{line.label:<{width}}  {before}{_share(line.rate):>7}  {interval:<18}"
        f" n={line.n}{_at_n(line.at_n)}{verdict}"
    )


def _at_n(rate: AtN | None) -> str:
    if rate is None:
        return ""
    before = f"{_share(rate.before)} → " if rate.before is not None else ""
    return f"  pass@{rate.n} {before}{_share(rate.rate)} [{_share(rate.low)}, {_share(rate.high)}]"


def _headline(line: RateLine) -> str:
    beside = f" (pass@{line.at_n.n} {_share(line.at_n.rate)})" if line.at_n is not None else ""
    return f"{_share(line.rate)}{beside}"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _escape(text: str) -> str:
    """Return the text with Slack's three control characters escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _link(run: RunFacts) -> str:
    return f"<{run.url}|{run.run_id}>"


def _header(text: str) -> dict[str, Any]:
    return {"type": "header", "text": {"type": "plain_text", "text": text[:150]}}


def _section(markdown: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": markdown[:3000]}}


def _fields(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {
        "type": "section",
        "fields": [{"type": "mrkdwn", "text": f"*{name}*\n{value}"} for name, value in pairs],
    }


def _context(markdown: str) -> dict[str, Any]:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": markdown}]}
