"""`hillclimb project defaults`: shown, changed key by key, replaced, cleared."""

import json
from pathlib import Path

from tests.fixtures.factories import spec_body
from tests.hillclimb.cli.conftest import Invoke, from_json


def test_defaults_are_set_shown_in_a_plan_and_cleared(hc: Invoke, tmp_path: Path) -> None:
    assert "The project has no defaults" in hc("project", "defaults").stdout
    done = hc("project", "defaults", "--set", "slack_channel=#training")
    assert "slack_channel: '#training'" in done.stdout
    both = hc("project", "defaults", "--set", "wandb.mode=offline", "--json")
    assert from_json(both)["defaults"]["slack_channel"] == "#training"
    file = tmp_path / "run.json"
    file.write_text(json.dumps(spec_body()))
    planned = hc("plan", str(file))
    assert (
        "from the defaults of project and operator: notify.slack, tracking.wandb.mode"
        in planned.stderr
    )
    file.write_text("wandb: {project: agents}\n")
    replaced = from_json(hc("project", "defaults", "--file", str(file), "--json"))["defaults"]
    assert (replaced["slack_channel"], replaced["wandb"]["project"]) == (None, "agents")
    assert "The project has no defaults" in hc("project", "defaults", "--clear").stdout


def test_a_mistake_is_refused_with_its_sentence(hc: Invoke) -> None:
    assert hc("project", "defaults", "--clear", "--set", "a=1").exit_code == 2
    refused = hc("project", "defaults", "--set", "slack=1")
    assert refused.exit_code == 6
    assert "Extra inputs are not permitted" in refused.stderr
