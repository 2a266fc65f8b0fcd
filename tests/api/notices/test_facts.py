"""The lines of a run that Slack and others show, from its resolved spec."""

from __future__ import annotations

from typing import Any

import pytest

from api.notices.slack.facts import configuration_of, wandb_line
from api.tables import Run
from tests.api.fixtures.story import spec


def body(**sections: Any) -> dict[str, Any]:
    return spec().model_dump(mode="json") | sections


def test_many_environments_are_counted_and_other_kinds_named() -> None:
    keys = [f"env{number}" for number in range(11)]
    data = body()["data"] | {"env_keys": keys, "modality": None}
    facts = dict(configuration_of(body(data=data, kind="eval", backend={"type": "tinker"})))
    assert facts["Environments"] == f"{', '.join(keys[:8])} and 3 more"
    assert (facts["Config"], facts["Backend"]) == ("kind eval", "Tinker")
    assert facts["Modality"] == "tool_use"
    of_dataset = dict(configuration_of(body(data=data | {"env_keys": []})))
    assert of_dataset["Environments"] == "those of the dataset"
    assert "rollouts" in of_dataset["Config"]


@pytest.mark.parametrize(
    ("wandb", "links", "attempt", "line"),
    [
        ({"mode": "disabled"}, {}, 1, None),
        ({"mode": "online", "project": "p"}, {}, 0, None),
        (
            {"mode": "offline"},
            {},
            1,
            "W&B: offline files of `run_1-attempt-1`: `hillclimb export tracking run_1 DIR`",
        ),
        ({"mode": "online"}, {"wandb": "https://w/r"}, 2, "W&B: <https://w/r|run_1-attempt-2>"),
        (
            {"mode": "online", "entity": None, "project": "p"},
            {"wandb": "https://w/|@channel"},
            1,
            "W&B: run `run_1-attempt-1` of project `p`",
        ),
        (
            {"mode": "online", "entity": "e", "project": "p"},
            {},
            1,
            "W&B: <https://wandb.ai/e/p/runs/run_1-attempt-1|run_1-attempt-1>",
        ),
    ],
)
def test_a_run_is_linked_where_it_is_at_wandb(
    wandb: dict[str, Any], links: dict[str, str], attempt: int, line: str | None
) -> None:
    run = Run(id="run_1", spec={"tracking": {"wandb": wandb}}, attempt=attempt, links=links)
    assert wandb_line(run) == line
