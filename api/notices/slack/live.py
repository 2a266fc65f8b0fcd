"""The live message of a run: status, progress, pass@1 before and now, cost, and buttons."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from datetime import datetime

from sqlalchemy.orm import Session

from api.notices.slack.blocks import (
    Block,
    Message,
    actions,
    button,
    context,
    escape,
    fields,
    header,
    link_button,
    progress_bar,
    section,
    share,
    with_confirmation,
)
from api.notices.slack.facts import (
    EvalPoint,
    checkpoint_line,
    configuration,
    cost_line,
    eval_points,
    machines_line,
    wandb_line,
)
from api.results.evals.conclusion import conclusion_of_run, result_of_run
from api.runs.end_reasons import REASONS
from api.runs.status import TERMINAL, RunStatus
from api.tables import Run
from hillclimb.protocol.end_reasons import ReasonCode

EMOJI = {
    RunStatus.QUEUED: ":hourglass_flowing_sand:",
    RunStatus.PROVISIONING: ":building_construction:",
    RunStatus.STARTING: ":rocket:",
    RunStatus.RUNNING: ":mountain:",
    RunStatus.RECOVERING: ":arrows_counterclockwise:",
    RunStatus.PAUSED: ":double_vertical_bar:",
    RunStatus.SUCCEEDED: ":white_check_mark:",
    RunStatus.FAILED: ":x:",
    RunStatus.CANCELLED: ":no_entry_sign:",
}
PAUSABLE = frozenset(
    {
        RunStatus.QUEUED,
        RunStatus.PROVISIONING,
        RunStatus.STARTING,
        RunStatus.RUNNING,
        RunStatus.RECOVERING,
    }
)
OPEN, LOGS, COMPARE, FORK = "run.open", "run.logs", "run.compare", "run.fork"
PAUSE, RESUME, CANCEL = "run.pause", "run.resume", "run.cancel"
APPROVE, ACKNOWLEDGE = "budget.approve", "guard.acknowledge"
MAX_DECODINGS = 4


def live_message(session: Session, run: Run, *, public_url: str, now: datetime) -> Message:
    """Return the message as of now; the same state of the run gives the same message."""
    status = RunStatus(run.status)
    points = eval_points(session, run.id)
    url = run_url(public_url, run.id)
    return Message(
        text=_summary(run, points),
        blocks=(
            header(f"{run.name}: {status.value}"),
            section(f"{EMOJI.get(status, ':gear:')} {_status(run)}\n{_progress(run)}"),
            *([section("\n".join(_rates(points)))] if points else []),
            fields(*((name, escape(value)) for name, value in configuration(run))),
            *(context(line) for line in _small_print(session, run, url, now=now)),
            _buttons(run, url, can_compare=_can_compare(run, points)),
        ),
    )


def digest_of(message: Message) -> str:
    """Return a digest by which an equal message is recognised."""
    text = json.dumps([message.text, list(message.blocks)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def run_url(public_url: str, run_id: str) -> str:
    """Return the address of the run's page."""
    return f"{public_url.rstrip('/')}/runs/{run_id}"


def _summary(run: Run, points: dict[str, tuple[EvalPoint, EvalPoint]]) -> str:
    figures = next((f", {name} {_change(*pair)}" for name, pair in points.items()), "")
    return f"{run.name}: {run.status}, step {run.progress_step} of {run.progress_total}{figures}"


def _status(run: Run) -> str:
    status = RunStatus(run.status)
    since = int(run.status_since.timestamp())
    when = f"<!date^{since}^since {{time}}|since {run.status_since:%H:%M} UTC>"
    sentence = f"*{status.value}* {when}"
    if run.end_code:
        sentence += f". {escape(REASONS[ReasonCode(run.end_code)].wording)}"
    detail = (run.end_message or "").strip()
    if detail and detail not in sentence:
        sentence += f" {escape(detail[:500])}"
    return sentence


def _progress(run: Run) -> str:
    step, total = run.progress_step, run.progress_total
    line = f"`{progress_bar(step, total)}` step {step} of {total}"
    if run.progress_phase:
        line += f", {run.progress_phase}"
    if run.progress_eta_s is not None:
        line += f", about {_duration(run.progress_eta_s)} left"
    return line


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    if minutes < 1:
        return "a minute"
    return f"{minutes} min" if minutes < 120 else f"{minutes / 60:.1f} h"


def _rates(points: dict[str, tuple[EvalPoint, EvalPoint]]) -> Iterator[str]:
    for name, (first, last) in list(points.items())[:MAX_DECODINGS]:
        at_n = "" if last.at_n is None else f", pass@{last.at_n[0]} {share(last.at_n[1])}"
        graded = last.num_graded
        more = "" if graded == last.num_tasks else f" ({graded} graded rollouts)"
        yield (
            f"*pass@1* {escape(name)}: *{_change(first, last)}* [{share(last.low)},"
            f" {share(last.high)}], n={last.num_tasks}{more} at step {last.step}{at_n}"
        )
    yield "_n is the number of tasks with a grade, here and in the thread_"


def _change(first: EvalPoint, last: EvalPoint) -> str:
    if first.step == last.step:
        return share(last.rate)
    return f"{share(first.rate)} → {share(last.rate)}"


def _can_compare(run: Run, points: dict[str, tuple[EvalPoint, EvalPoint]]) -> bool:
    lineage = run.spec.get("lineage") or {}
    moved = any(first.step != last.step for first, last in points.values())
    return bool(points) and (moved or lineage.get("forked_from") is not None)


def _small_print(session: Session, run: Run, url: str, *, now: datetime) -> Iterator[str]:
    yield f"<{url}|{run.id}> · cost {escape(cost_line(session, run, now=now))}"
    wandb = wandb_line(run)
    if wandb is not None:
        yield wandb
    if RunStatus(run.status) in TERMINAL:
        conclusion = conclusion_of_run(session, run, result_of_run(session, run))
        if conclusion is not None:
            yield escape(conclusion.sentence)
        yield f"{machines_line(session, run)} · {checkpoint_line(session, run)}"


def _buttons(run: Run, url: str, *, can_compare: bool) -> Block:
    status, value = RunStatus(run.status), button_value(run)
    row = [link_button("Open", OPEN, url), link_button("Logs", LOGS, f"{url}/log")]
    if can_compare:
        row.append(button("Compare", COMPARE, value))
    row.append(button("Fork…", FORK, value))
    if status in PAUSABLE:
        row.append(button("Pause", PAUSE, value))
    if status is RunStatus.PAUSED:
        row.append(button("Resume", RESUME, value, style="primary"))
    if status not in TERMINAL:
        question = f"Cancel *{escape(run.name[:120])}*? A running trainer saves a checkpoint first."
        cancel = button("Cancel", CANCEL, value, style="danger")
        row.append(with_confirmation(cancel, "Cancel the run", question, "Cancel the run"))
    return actions(*row)


def button_value(run: Run) -> str:
    """Return the value of a run's buttons: it changes with the status, so that each acts once."""
    return f"{run.id}:{int(run.status_since.timestamp() * 1000)}"
