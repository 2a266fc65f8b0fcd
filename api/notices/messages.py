"""Builds Slack messages from facts: Block Kit and fallback text, as pure functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from api.notices.slack.blocks import (
    Block,
    Message,
    actions,
    code,
    context,
    escape,
    fields,
    header,
    section,
    share,
)
from hillclimb.protocol.payloads.events import GuardTripped
from hillclimb.stats.intervals import points_text

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
    """One row of the table: a pass@1 with its interval (shares in [0, 1])."""

    label: str
    n: int
    """Tasks with a graded rollout; of a comparison, on both sides."""
    rate: float | None
    low: float | None
    high: float | None
    before: float | None = None
    verdict: str | None = None
    at_n: AtN | None = None
    """pass@n beside it, where tasks were sampled n times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """The remains of a run that ended."""

    lines: Sequence[str] = ()
    """About machines, checkpoint, cost and W&B, in Slack's markup."""
    conclusion: str = ""
    """What the training has shown, in one line."""
    has_learned: bool = True
    """False if no step could change the policy: the run is then no plain success."""
    log_tail: str = ""
    """The last lines of the log of a failed run."""


NOTHING_REMAINS = Remains()


def provisioning(run: RunFacts, *, machines: str, attempt: int) -> Message:
    """Return the message about a run for which machines are being rented."""
    return Message(
        text=f"Run {run.name} is provisioning",
        blocks=(
            section(
                f":building_construction: *{escape(run.name)}* rents machines (attempt"
                f" {attempt}): {escape(machines)}"
            ),
        ),
    )


def started(
    run: RunFacts,
    *,
    configuration: Sequence[tuple[str, str]],
    engine: str,
    resumed_from: int | None = None,
) -> Message:
    """Return the message about the start of a run's trainer."""
    start = "" if resumed_from is None else f" from the checkpoint of step {resumed_from}"
    return Message(
        text=f"Run {run.name} started ({run.total_steps} steps){start}",
        blocks=(
            header(f"▶ {run.name} started"),
            fields(
                ("Run", _link(run)),
                ("Steps", str(run.total_steps)),
                *((name, escape(value)) for name, value in configuration),
            ),
            context(f"engine {escape(engine)}{start}"),
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
            section(
                f"*Eval at step {step}* of {run.total_steps}, `{escape(decoding)}`: *{overall}*"
            ),
            section(rate_table(lines)),
            *(section(f"by {title}\n{rate_table(rows)}") for title, rows in breakdowns.items()),
            *([context(escape(early_stop))] if early_stop else []),
            context(
                "pass@1 from the first eval to this one, the change in points, 95 % interval, n"
                f" tasks · {_link(run)}"
            ),
        ),
    )


def budget(run: RunFacts, *, sentence: str, approval: Block | None = None) -> Message:
    """Return the message about the used share of a budget.

    `approval` is a button that extends it.
    """
    return Message(
        text=f"{run.name}: {sentence}",
        blocks=(
            section(f":moneybag: *{escape(run.name)}*: {escape(sentence)}"),
            *([actions(approval)] if approval else []),
            context(f"extend it with `hillclimb budget {run.run_id} --add-usd` · {_link(run)}"),
        ),
    )


def warning(run: RunFacts, *, sentence: str) -> Message:
    """Return the message about a problem that a person has to fix."""
    return Message(
        text=f"{run.name}: {sentence}",
        blocks=(
            section(f":warning: *{escape(run.name)}*: {escape(sentence)}"),
            context(_link(run)),
        ),
    )


def guard(run: RunFacts, trip: GuardTripped, *, acknowledgement: Block) -> Message:
    """Return the message about a guard that tripped, with its effect on the run."""
    effect = {"alert": "The run goes on.", "pause": "The run pauses.", "stop": "The run ends."}
    return Message(
        text=f"{run.name}: guard {trip.message}",
        blocks=(
            section(
                f":vertical_traffic_light: *{escape(run.name)}*, step {trip.step}: guard"
                f" `{escape(trip.guard)}` tripped. {effect[trip.action]}"
            ),
            section(escape(trip.evidence.message)),
            actions(acknowledgement),
            context(f"all guards: `hillclimb guards {run.run_id}` · {_link(run)}"),
        ),
    )


def machines(
    run: RunFacts, *, status: str, reason: str, detail: str, approval: Block | None = None
) -> Message:
    """Return the message about a run that lost its cluster, or was paused by a limit."""
    emoji = ":arrows_counterclockwise:" if status == "recovering" else ":double_vertical_bar:"
    adds = detail.strip().rstrip(".") not in reason
    return Message(
        text=f"Run {run.name} is {status}: {reason}",
        blocks=(
            section(f"{emoji} *{escape(run.name)}* is {escape(status)}. {escape(reason)}"),
            *([section(escape(detail))] if detail and adds else []),
            *([actions(approval)] if approval else []),
            context(_link(run)),
        ),
    )


def ended(
    run: RunFacts,
    *,
    status: str,
    reason: str,
    detail: str,
    tables: Mapping[str, Sequence[RateLine]],
    remains: Remains = NOTHING_REMAINS,
) -> Message:
    """Return the message about the end of a run, with first and last evaluation per decoding."""
    emoji = STATUS_EMOJI.get(status, ":grey_question:")
    if status == "succeeded" and not remains.has_learned:
        emoji = ":warning:"
    tables_blocks = [
        block
        for decoding, lines in tables.items()
        for block in (section(f"`{escape(decoding)}`"), section(rate_table(lines)))
    ]
    facts = [("Run", _link(run)), ("End", escape(reason))]
    return Message(
        text=f"Run {run.name} {status}: {reason}",
        blocks=(
            section(f"{emoji} *{escape(run.name)}* {escape(status)}"),
            fields(*facts),
            *([section(escape(detail))] if detail else []),
            *([section(escape(remains.conclusion))] if remains.conclusion else []),
            *tables_blocks,
            *_remains(run, remains, has_failed=status == "failed"),
        ),
    )


def _remains(run: RunFacts, remains: Remains, *, has_failed: bool) -> Iterator[Block]:
    if remains.log_tail:
        yield section(f"Last lines of <{run.url}/log|the log>:")
        yield code(remains.log_tail)
    elif has_failed:
        yield section(f"<{run.url}/log|The log> has no lines of the last attempt.")
    if remains.lines:
        yield context("\n".join(remains.lines))


def rate_table(lines: Sequence[RateLine]) -> str:
    """Return the table as a code block with aligned columns."""
    if not lines:
        return "no outcomes"
    width = max(len(line.label) for line in lines)
    longest = max(len(escape(_row(line, width))) for line in lines)
    most = max(2, min(MAX_ENVS, MAX_TABLE // (longest + 1) - 1))
    visible = [*lines[: most - 1], lines[-1]] if len(lines) > most else lines
    rows = [_row(line, width) for line in visible]
    hidden = len(lines) - len(visible)
    if hidden:
        rows.insert(-1, f"… and {hidden} more environments")
    return "```\n" + "\n".join(escape(row) for row in rows) + "\n```"


def _row(line: RateLine, width: int) -> str:
    before = f"{share(line.before):>7} → " if line.before is not None else ""
    interval = f"[{share(line.low)}, {share(line.high)}]"
    verdict = f"  {line.verdict}" if line.verdict else ""
    return (
        f"{line.label:<{width}}  {before}{share(line.rate):>7}{_delta(line)}  {interval:<18}"
        f" n={line.n}{_at_n(line.at_n)}{verdict}"
    )


def _delta(line: RateLine) -> str:
    """Return the change in percentage points; nothing without a rate before."""
    if line.before is None:
        return ""
    change = None if line.rate is None else line.rate - line.before
    return f" {points_text(change):>6}"


def _at_n(rate: AtN | None) -> str:
    if rate is None:
        return ""
    before = f"{share(rate.before)} → " if rate.before is not None else ""
    return f"  pass@{rate.n} {before}{share(rate.rate)} [{share(rate.low)}, {share(rate.high)}]"


def _headline(line: RateLine) -> str:
    beside = f" (pass@{line.at_n.n} {share(line.at_n.rate)})" if line.at_n is not None else ""
    return f"{share(line.rate)}{beside}"


def _link(run: RunFacts) -> str:
    return f"<{run.url}|{run.run_id}>"
