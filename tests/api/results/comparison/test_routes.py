"""Bad input, and runs of other projects, at the routes of comparison and signal."""

from __future__ import annotations

import pytest

from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"a": "RUN"}, 422),
        ({"a": "RUN", "b": "RUN", "k": "0"}, 422),
        ({"a": "RUN", "b": "RUN", "k": "3"}, 404),
        ({"a": "RUN", "b": "RUN", "rule": "v3"}, 422),
        ({"a": "RUN", "b": "RUN", "step": "40"}, 422),
        ({"a": "RUN", "b": "RUN@"}, 422),
        ({"a": "RUN", "b": "RUN@-1"}, 422),
        ({"a": "RUN", "b": "RUN@999999999"}, 404),
        ({"a": "RUN", "b": "RUN@1@2"}, 422),
        ({"a": "RUN", "b": "run_\x00"}, 400),
        ({"a": "RUN", "b": "run_nowhere"}, 404),
    ],
)
def test_a_comparison_that_cannot_be_made_is_refused(
    served: Served, story: Story, query: dict[str, str], status: int
) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 40, {"booking": 0.5}))
    chosen = {name: value.replace("RUN", run_id) for name, value in query.items()}
    with served.client() as client:
        assert client.get("/v1/compare", params={"a": run_id, "b": run_id}).status_code == 200
        response = client.get("/v1/compare", params=chosen)
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("query", "status"),
    [({"window": "0"}, 422), ({"env": "\x00"}, 400), ({"env": "nowhere"}, 200)],
)
def test_a_signal_report_of_bad_filters_is_refused(
    served: Served, story: Story, query: dict[str, str], status: int
) -> None:
    run_id = story.running()
    with served.client() as client:
        response = client.get(f"/v1/runs/{run_id}/signal", params=query)
    assert response.status_code == status, response.text


def test_another_projects_run_does_not_exist(served: Served, story: Story) -> None:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 40, {"booking": 0.5}))
    with served.client(served.stranger_key) as client:
        for path in (f"/v1/compare?a={run_id}&b={run_id}", f"/v1/runs/{run_id}/signal"):
            assert client.get(path).status_code == 404
