"""Commands that read: status, runs, envs, signal, compare, cost, changelog."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy.orm import Session

from api.admission.experiments import store as experiments
from api.admission.experiments.report import changelog_page
from api.clusters.overview import forecast_of_run
from api.http.slack.arguments import excerpt, find_run, only_run
from api.http.slack.call import InputRejected, PersonRequest
from api.http.slack.reply import SlackReply, of_blocks, plain, sentence
from api.notices.messages import RateLine, rate_table
from api.notices.render import change_line, rate_line
from api.notices.slack.blocks import code, escape, section, share
from api.notices.slack.facts import cost_line
from api.notices.slack.live import EMOJI, live_message, run_url
from api.results.comparison.comparison import Point, build_comparison
from api.results.evals.report import build_report
from api.results.evals.table import eval_table
from api.results.signal import SignalFilters, build_signal
from api.runs import store
from api.runs.status import RunStatus
from api.runs.store import RunFilters
from api.tables import Run

MAX_RUNS, MAX_EXPERIMENTS = 10, 20


def status(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Show a run as its live message does."""
    caller = request.reader()
    with request.services.database.transaction() as session:
        run = find_run(session, caller.project_id, only_run(words, "`/hillclimb status RUN`"))
        base = request.services.settings.link_base
        message = live_message(session, run, public_url=base, now=request.now)
    return SlackReply(message=message)


def runs(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """List the newest runs, optionally of one status."""
    caller = request.reader()
    statuses = tuple(sorted({_status(word) for word in words}))
    filters = RunFilters(status=statuses)
    with request.services.database.transaction() as session:
        newest = store.list_runs(session, caller.project_id, filters, after=None, limit=MAX_RUNS)
    if not newest:
        return sentence("No run. `/hillclimb run PRESET` starts one.")
    return sentence("\n".join(_row(request, run) for run in newest))


def _status(word: str) -> str:
    try:
        return RunStatus(word.lower()).value
    except ValueError as error:
        known = ", ".join(each.value for each in RunStatus)
        raise InputRejected(f"There is no status {excerpt(word)}: take one of {known}.") from error


def _row(request: PersonRequest, run: Run) -> str:
    url = run_url(request.services.settings.link_base, run.id)
    emoji = EMOJI.get(RunStatus(run.status), ":gear:")
    steps = f"step {run.progress_step} of {run.progress_total}"
    return f"{emoji} *{escape(run.name)}* {run.status}, {steps} · <{url}|{run.id}>"


def envs(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Show pass@1 of every environment in the run's last evaluation, per decoding."""
    caller = request.reader()
    with request.services.database.transaction() as session:
        run = find_run(session, caller.project_id, only_run(words, "`/hillclimb envs RUN`"))
        newest = {each["decoding"]: each for each in eval_table(session, run.id)}
        name = run.name
    if not newest:
        return plain(f"{name} has no evaluation yet.")
    blocks = []
    for decoding, each in newest.items():
        lines = [rate_line(key, rate) for key, rate in each["envs"].items()]
        title = f"*{escape(name)}*, `{escape(decoding)}` at step {each['step']}"
        blocks.append(section(title))
        blocks.append(section(rate_table([*lines, rate_line("all", each["all"])])))
    return of_blocks(f"{name}: environments", blocks)


def signal(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Show what training can learn from each environment."""
    caller = request.reader()
    with request.services.database.transaction() as session:
        run = find_run(session, caller.project_id, only_run(words, "`/hillclimb signal RUN`"))
        report = build_signal(session, run.id, SignalFilters())
        name = run.name
    if not report["environments"]:
        return plain(f"{name} has no training step yet, so there is no signal to read.")
    lines = [
        f"{key}: {share(each['signal_ratio'])} of groups with signal, {each['reading']}:"
        f" {each['why']}"
        for key, each in [*report["environments"].items(), ("all", report["all"])]
    ]
    steps = f"steps {report['first_step']} to {report['last_step']}"
    return of_blocks(
        f"{name}: signal", (section(f"*{escape(name)}*, {steps}"), code("\n".join(lines)))
    )


def compare(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Compare two runs task by task, or a run's first evaluation with its last."""
    caller = request.reader()
    if not 1 <= len(words) <= 2:
        raise InputRejected("Name one or two runs: `/hillclimb compare RUN` or `compare A B`.")
    with request.services.database.transaction() as session:
        first, *others = (_point(session, caller.project_id, word) for word in words)
        if others:
            return compare_points(session, first, others[0])
        return compare_ends(session, first.run)


def compare_points(session: Session, a: Point, b: Point) -> SlackReply:
    """Return the comparison of two evaluations of two runs."""
    facts = build_comparison(session, a, b)
    sides = [f"{facts[side]['name']} at step {facts[side]['step']}" for side in ("a", "b")]
    tables = {
        name: [
            *(change_line(key, each) for key, each in decoding["environments"].items()),
            change_line("all", decoding["all"]),
        ]
        for name, decoding in facts["decodings"].items()
    }
    return _comparison(" → ".join(sides), tables)


def compare_ends(session: Session, run: Run) -> SlackReply:
    """Return the comparison of a run's first evaluation with its last."""
    report = build_report(session, run.id)
    if report["before_step"] == report["after_step"]:
        return plain(f"{run.name} has one evaluation: there is nothing to compare yet.")
    title = f"{run.name}, step {report['before_step']} → {report['after_step']}"
    return _comparison(
        title,
        {
            name: [
                *(
                    change_line(key, each[name])
                    for key, each in report["environments"].items()
                    if name in each
                ),
                change_line("all", report[name]),
            ]
            for name in report["decodings"]
        },
    )


def _comparison(title: str, tables: dict[str, list[RateLine]]) -> SlackReply:
    blocks = [section(f"*{escape(title)}*")]
    for name, lines in tables.items():
        blocks += [section(f"`{escape(name)}`"), section(rate_table(lines))]
    return of_blocks(title, blocks)


def _point(session: Session, project_id: str, word: str) -> Point:
    name, at, step = word.rpartition("@")
    if at and step.isdecimal() and name:
        return Point(run=find_run(session, project_id, name), step=int(step[:9]))
    return Point(run=find_run(session, project_id, word))


def cost(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Show what a run has cost, its budgets, and the forecast to its end."""
    caller = request.reader()
    with request.services.database.transaction() as session:
        run = find_run(session, caller.project_id, only_run(words, "`/hillclimb cost RUN`"))
        line = f"{run.name}: {cost_line(session, run, now=request.now)}"
        forecast = forecast_of_run(session, run, now=request.now)
    if forecast is not None and forecast.whole_usd is not None:
        line += f"; about ${forecast.whole_usd:.2f} at its end"
    return plain(line)


def changelog(request: PersonRequest, words: Sequence[str]) -> SlackReply:
    """Show the changelog of the newest experiments, or one experiment's entry."""
    caller = request.reader()
    if len(words) > 1:
        raise InputRejected("One experiment is enough: `/hillclimb changelog EXPERIMENT`.")
    with request.services.database.transaction() as session:
        if words:
            entries = [experiments.get_experiment(session, caller.project_id, words[0])]
        else:
            query = experiments.list_experiments
            entries = list(
                query(session, caller.project_id, before=None, limit=MAX_EXPERIMENTS + 1)
            )
        parents = experiments.keys_of(session, entries)
        chosen = [(each, parents.get(each.parent_id or "")) for each in entries[:MAX_EXPERIMENTS]]
        page = changelog_page(session, chosen, has_more=len(entries) > MAX_EXPERIMENTS)
    return of_blocks("changelog", (code(page),))
