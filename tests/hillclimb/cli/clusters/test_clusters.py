"""`clusters`, `budget`, `limits`, `clouds`, `orphans`, and what `show` says of money."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import update

from api.clusters import exclusions
from api.runs.journal import utc_now
from api.tables import Cluster, OrphanedCluster
from hillclimb.cli.terminal.exits import Exit
from hillclimb.stack.doctor import Check, examine
from hillclimb.stack.options import StackOptions
from hillclimb.stack.state.directory import StateDirectory
from hillclimb.stack.state.records import ProcessRecord, StackRecord
from hillclimb.stack.system.processes import identify
from tests.api.clusters.cluster_story import LAMBDA, rented
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.hillclimb.cli.conftest import Invoke, from_json

OWN = ("--set", "data={env_keys: [booking]}", "--set", "environment.provider=minifleet")


@dataclass(slots=True)
class Meter:
    """What a cluster of $23.92 an hour costs that was two hours old when this was made."""

    begun: datetime = field(default_factory=utc_now)

    def reads(self, found: re.Match[str] | None, *, usd: float) -> bool:
        """Whether a sum is what it was at the beginning, and what the time since then costs."""
        assert found is not None
        since = 23.92 * ((utc_now() - self.begun) / timedelta(hours=1))
        return usd - 0.01 <= float(found[1]) <= usd + since + 0.01


def test_a_run_shows_its_ledger_its_cost_and_what_is_left(hc: Invoke, story: Story) -> None:
    meter = Meter()
    run_id = rented(story, hours=2.0, eta_s=3600.0)
    shown = hc("show", run_id).stdout
    cost = re.search(r"cost \$(\d+\.\d\d), 2\.0\d h, \$23\.92 an hour now", shown)
    assert meter.reads(cost, usd=47.84), shown
    total = re.search(r"1:00:00 left, about \$23\.92 more, \$(\d+\.\d\d)", shown)
    assert meter.reads(total, usd=71.76), shown
    ledger = hc("clusters", run_id).stdout
    assert "ResourcesUnavailableError: no H100 left" in ledger
    assert meter.reads(re.search(r"total \$(\d+\.\d\d)", ledger), usd=47.84), ledger
    whole = hc("clusters").stdout
    runs = re.search(r"1 of 8 clusters, \$23\.92 an hour; all runs so far \$(\d+\.\d\d)", whole)
    assert meter.reads(runs, usd=47.84), whole
    assert run_id in whole
    with story.database.transaction() as session:
        session.execute(update(Cluster).values(status_reason="it is still there: access denied"))
    for shown in (hc("clusters"), hc("clusters", run_id)):
        assert "it is still there: access denied" in " ".join(shown.stdout.split())


def test_a_budget_is_shown_and_extended_and_says_when_that_is_not_enough(
    hc: Invoke, story: Story
) -> None:
    run_id = rented(story, hours=2.0, budget={"usd": 40.0})
    assert "of $40.00" in hc("budget", run_id).stdout
    short = hc("budget", run_id, "--add-usd", "5")
    assert "of $45.00" in short.stdout
    assert "The budget of the run is used up" in short.stdout
    enough = hc("budget", run_id, "--add-usd", "55")
    assert "48%" in enough.stdout
    assert "used up" not in enough.stdout


def test_extending_what_is_not_limited_is_refused(hc: Invoke, story: Story) -> None:
    bare, limited = rented(story), rented(story, budget={"usd": 40.0})
    for run_id, options in ((bare, ("--add-usd", "5")), (limited, ("--add-hours", "5"))):
        refused = hc("budget", run_id, *options)
        assert refused.exit_code == Exit.REFUSED
        assert "there is nothing to extend" in refused.stderr
    assert hc("budget", bare, "--add-usd", "-1").exit_code == Exit.USAGE


def test_limits_of_nothing_are_used_up_at_once(hc: Invoke, story: Story) -> None:
    rented(story, hours=1.0)
    assert "usd 0.0" in hc("limits", "--usd", "0").stdout
    assert "The budget of the project is used up" in hc("clusters").stdout
    assert "usd no limit" in hc("limits", "--clear").stdout


def test_a_limit_that_is_raised_goes_on_counting_until_it_is_told_not_to(
    hc: Invoke, story: Story
) -> None:
    rented(story, hours=1.0)
    hc("limits", "--usd", "1")
    since = from_json(hc("limits", "--json"))["since"]
    hc("limits", "--usd", "2000", "--max-clusters", "9")
    assert from_json(hc("limits", "--json"))["since"] == since
    hc("limits", "--from-now")
    assert from_json(hc("limits", "--json"))["since"] > since


def test_what_was_learnt_of_clouds_is_listed_and_cleared(hc: Invoke, story: Story) -> None:
    now = utc_now()
    with story.database.transaction() as session:
        until = now + timedelta(hours=1)
        exclusions.exclude(session, LAMBDA, "no H100 left", until=until, now=now)
    [learnt] = from_json(hc("clouds", "--json"))["data"]
    assert "no H100 left" in hc("clusters").stdout
    planned = hc("plan", "--preset", "qwen3-8b-8xh100", *OWN, "--wait-prices", "0")
    assert "H100:8 on lambda is tried after the others until" in planned.stderr
    assert hc("clouds", "--clear", "cex_none").exit_code == Exit.NOT_FOUND
    assert "no machines failed recently" in hc("clouds", "--clear", learnt["id"]).stdout


def test_strays_are_listed_without_ending_any_and_ended_by_name(hc: Invoke, story: Story) -> None:
    assert "There are no orphaned clusters." in hc("orphans").stdout
    with story.database.transaction() as session:
        session.add(OrphanedCluster(name="hc-abcd-lost-1", first_seen_at=utc_now()))
    listed = from_json(hc("orphans", "--json"))["data"][0]
    assert listed["terminate_requested_at"] is None
    assert (
        "at the next cluster sweep, requested by key:test"
        in hc("orphans", "--terminate", "hc-abcd-lost-1").stdout
    )
    missing = hc("orphans", "--terminate", "hc-abcd-mine-1")
    assert missing.exit_code == Exit.NOT_FOUND
    assert "it is terminated, or a run owns it" in missing.stderr
    assert hc("orphans", "--terminate", "x", "--terminate-all").exit_code == Exit.USAGE


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("backend.skypilot.candidates=[]", "at least 1 item"),
        ("backend.skypilot.candidates=[{infra: azure}]", "use one of aws, gcp"),
        ("backend.skypilot.candidates=[{infra: lambda, accelerators: H100}]", "as in H100:8"),
        ("backend.skypilot.candidates=[{infra: lambda, use_spot: true}]", "set use_spot to false"),
        ("backend.skypilot.max_hours=100000", "8760"),
        ("budget={usd: 0}", "greater than 0"),
        ("budget={usd: -1}", "greater than 0"),
        ("budget={warn_at: [0.5]}", "limits nothing without usd or hours"),
        ("budget={usd: 5, warn_at: [0.8, 0.5]}", "must rise"),
    ],
)
def test_settings_that_cannot_be_are_refused_in_a_sentence(
    hc: Invoke, setting: str, said: str
) -> None:
    refused = hc("submit", "--preset", "qwen3-8b-8xh100", *OWN, "--set", setting)
    assert refused.exit_code in (Exit.REFUSED, Exit.USAGE), refused.output
    assert said in refused.stderr


def doctors_finding(served: Served, state_dir: Path) -> Check:
    """What `hillclimb doctor` says of a stack whose API is the one that is served here."""
    me = identify(os.getpid())
    assert me is not None
    state = StateDirectory(state_dir)
    state.create()
    port = int(served.url.rpartition(":")[2])
    supervisor = ProcessRecord(pid=me.pid, started=me.started)
    state.write(StackRecord(state="ready", supervisor=supervisor, ports={"api": port}))
    options = StackOptions(state_dir=state_dir, trainer_python=state_dir / "no" / "python")
    return next(check for check in examine(options) if check.name == "service")


def test_clusters_that_nobody_looks_after_are_told_of_everywhere(
    hc: Invoke, story: Story, served: Served, tmp_path: Path
) -> None:
    run_id = rented(story)
    assert "No worker has checked" not in hc("clusters").stdout
    assert doctors_finding(served, tmp_path / "state").level == "ok"
    with story.database.transaction() as session:
        [cluster] = session.query(Cluster).where(Cluster.run_id == run_id)
        cluster.due_at = utc_now() - timedelta(minutes=12)
    shown = " ".join(hc("clusters").stdout.split())
    assert "No worker has checked 1 cluster for 12 min: no cluster is launched" in shown
    assert "worker --queues clusters" in shown
    with served.client() as client:
        [warning] = client.get("/v1/health/ready").json()["warnings"]
    assert warning.startswith("No worker has checked 1 cluster for 12 min")
    check = doctors_finding(served, tmp_path / "state")
    assert (check.level, check.detail) == ("warn", warning.partition(". ")[0])
    assert "--queues clusters" in check.fix
