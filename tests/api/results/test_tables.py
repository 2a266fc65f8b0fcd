"""`POST /v1/verdicts/tables`: answers and refusals through the real application."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.api.fixtures.serving import Served

GITHUB = {"env_key": "github", "before": "46.7%", "after": "70.0%"}


def post(served: Served, body: dict[str, Any]) -> httpx.Response:
    with served.client() as client:
        return client.post("/v1/verdicts/tables", json=body)


def test_a_table_is_judged_over_all_pairings(served: Served) -> None:
    body = {"rows": [GITHUB], "overall": {"before": "14/30", "after": "21/30"}, "rule": "v1"}
    response = post(served, body)
    assert response.status_code == 200, response.text
    answer = response.json()
    row = answer["rows"][0]
    assert row["counts"] == [{"num_tasks": 30, "before": 14, "after": 21}]
    assert (row["num_lost"], row["verdicts"]) == ([0, 9], ["improved", "flat"])
    assert row["p_value"] == pytest.approx([0.015625, 0.229523], abs=1e-6)
    assert row["p_adjusted"] is None
    assert {**answer["overall"], "name": "github", "before": "46.7%", "after": "70.0%"} == row
    assert answer["rule"] == "v1"


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            {"rows": [{**GITHUB, "after": "70.1%"}]},
            "github: no number of tasks up to 30 gives both 46.7% and 70.1%.",
        ),
        (
            {"rows": [{**GITHUB, "before": "half"}]},
            "'half' is neither a share like 46.7% nor a count like 14/30.",
        ),
        ({"rows": [{**GITHUB, "before": "31/30"}]}, "31/30 are not passes of tasks."),
        (
            {
                "rows": [
                    {"env_key": f"e{at}", "before": f"{at + 40}%", "after": f"{at + 41}%"}
                    for at in range(20)
                ],
                "overall": {"before": "50%", "after": "51%"},
                "max_tasks": 300,
            },
            "the table stands for too many numbers of tasks: name those of some rows.",
        ),
    ],
)
def test_a_table_of_no_pass_counts_is_refused_in_a_sentence(
    served: Served, body: dict[str, Any], sentence: str
) -> None:
    response = post(served, body)
    assert (response.status_code, response.json()["code"]) == (422, "table_rejected")
    assert response.json()["detail"] == sentence


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"rows": []},
        {"rows": [GITHUB, GITHUB]},
        {"rows": [{**GITHUB, "num_tasks": 0}]},
        {"rows": [{**GITHUB, "before": "4" * 21}]},
        {"rows": [{**GITHUB, "note": "?"}]},
        {"rows": [GITHUB], "max_tasks": 301},
        {"rows": [GITHUB], "rule": "v0"},
    ],
)
def test_a_body_that_is_no_table_is_invalid(served: Served, body: dict[str, Any]) -> None:
    response = post(served, body)
    assert (response.status_code, response.json()["code"]) == (422, "invalid")
    assert response.json()["errors"]


def test_a_key_is_needed(served: Served) -> None:
    response = httpx.post(f"{served.url}/v1/verdicts/tables", json={"rows": [GITHUB]})
    assert response.status_code == 401
