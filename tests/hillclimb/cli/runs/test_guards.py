"""Guards for people: `guards`, `show`, `watch`, `plan`, and the route behind them."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from hillclimb.cli.runs.runs import warning_lines
from hillclimb.cli.runs.view import lines_of_event
from hillclimb.client.run_view import RunView, apply
from hillclimb.spec.monitoring.guards import GUARDS
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.scheduling.guards.guarded import MIXED, Guarded, guarded_spec
from tests.hillclimb.cli.conftest import Invoke, from_json
from tests.hillclimb.client.payloads import event_payload

ALIKE = (0.0,) * 4
MESSAGE = "no_signal: 2 steps in a row without a group whose scores differ"


def tripped(story: Story) -> Guarded:
    guarded = Guarded.begin(story, {"no_signal": {"steps": 2}, "infra_errors": {}})
    guarded.steps([1, 2], ALIKE)
    return guarded


def test_the_table_shows_each_guard_and_what_it_would_take(hc: Invoke, story: Story) -> None:
    guarded = tripped(story)
    shown = hc("guards", guarded.run_id)
    assert shown.exit_code == 0, shown.output
    rows = {line.split()[0]: line.split() for line in shown.stdout.splitlines() if line.strip()}
    assert rows["no_signal"][1:] == ["alert", "tripped", "2", "2", "1"]
    assert rows["infra_errors"][1:3] == ["alert", "waiting"]
    assert rows["hopeless"][1:3] == ["–", "off"]
    assert "infra_errors: 8 of 50 rollouts have ended; trips with 42 more rollouts" in shown.stdout
    assert f"step 2, attempt 1  {MESSAGE}" in shown.stdout
    assert "[alert, lasts]" in shown.stdout
    guarded.steps([3], MIXED)
    assert "[alert, over at step 3]" in hc("guards", guarded.run_id).stdout


def test_scripts_get_the_states_in_the_order_of_evaluation(hc: Invoke, story: Story) -> None:
    guarded = tripped(story)
    report = from_json(hc("guards", guarded.run_id, "--json"))
    assert [each["guard"] for each in report["guards"]] == list(GUARDS)
    (trip,) = report["trips"]
    assert (trip["guard"], trip["number"], trip["cleared_at"]) == ("no_signal", 1, None)
    assert trip["evidence"]["measured"] == 2.0
    waiting = next(each for each in report["guards"] if each["guard"] == "infra_errors")
    assert waiting["next_check"] == "after the next step"


def test_a_run_that_trains_nothing_has_no_guards(hc: Invoke, story: Story) -> None:
    run_id = story.running(guarded_spec({}, kind="eval"))
    assert hc("guards", run_id).stdout.strip() == "this run has no guards"


def test_the_guards_of_another_project_are_not_found(served: Served, story: Story) -> None:
    guarded = tripped(story)
    path = f"/v1/runs/{guarded.run_id}/guards"
    with served.client(served.stranger_key) as stranger, served.client() as owner:
        assert stranger.get(path).json()["code"] == "run_not_found"
        assert owner.get(path).status_code == 200


def test_show_and_watch_tell_that_a_guard_tripped(hc: Invoke, story: Story) -> None:
    guarded = tripped(story)
    assert f"warning: guard {MESSAGE}" in hc("show", guarded.run_id).stdout
    shown = from_json(hc("show", guarded.run_id, "--json"))
    assert shown["warnings"][0].startswith(f"guard {MESSAGE}")
    data = guarded.events()[0].data
    view = apply(RunView(run_id="run_1"), "guard.tripped", data)
    (line,) = lines_of_event(view, "guard.tripped")
    assert line.startswith(f"warning: guard {MESSAGE}")
    assert next(warning_lines([event_payload("guard.tripped", data)])) == line


def test_a_plan_shows_the_resolved_guards(hc: Invoke, tmp_path: Path) -> None:
    body = guarded_spec({"hopeless": {"policy": "stop", "max_chance": 0.01}}).model_dump()
    sections = {key: body[key] for key in ("name", "data")}
    guards = {"hopeless": {"policy": "stop", "max_chance": 0.01}, "idle_gpus": {"policy": None}}
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(json.loads(json.dumps({**sections, "guards": guards}))))
    planned = hc("plan", str(path))
    assert planned.exit_code == 0, planned.output
    resolved = json.loads(planned.stdout)["guards"]
    assert resolved["hopeless"]["policy"] == "stop"
    assert resolved["hopeless"]["min_share_done"] == 0.5
    assert list(resolved) == list(GUARDS)
    assert "stop: hopeless" in planned.stderr
    assert "off: idle_gpus" in planned.stderr


def test_an_acknowledged_episode_says_by_whom(hc: Invoke, story: Story) -> None:
    guarded = tripped(story)
    shown = hc("guards", guarded.run_id, "--acknowledge", "no_signal")
    assert shown.exit_code == 0, shown.output
    assert "[alert, lasts, acknowledged by key:test]" in shown.stdout
    assert hc("guards", guarded.run_id, "--acknowledge", "hopeless").exit_code == 7
