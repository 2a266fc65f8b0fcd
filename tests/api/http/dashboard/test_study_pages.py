"""Pages of experiments, campaigns, issues, and the heat map of the signal."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from api.http.dashboard.studies.experiments import learning_curves
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.http.dashboard.stored import sign_in


@pytest.fixture
def browser(served: Served) -> Iterator[httpx.Client]:
    with served.browser() as browser:
        yield sign_in(served, browser)


def learned(story: Story, after: float) -> str:
    run_id = story.running()
    story.push(run_id, story.evaluation(run_id, 0, {"booking": 0.2}))
    story.push(run_id, story.step(run_id, 1, {"booking": 0.5}))
    story.push(run_id, story.evaluation(run_id, 40, {"booking": after}))
    story.finish(run_id, 40)
    return run_id


def experiment(served: Served, *runs: str) -> None:
    spec = {
        "key": "v1",
        "title": "a <b>larger</b> rate",
        "hypothesis": "The learning rate is too low.",
        "changes": [{"key": "optimizer.lr", "rationale": "no clipping"}],
        "watch": ["eval/all/pass_at_1 >= +0.05"],
    }
    with served.client() as client:
        assert client.post("/v1/experiments", json=spec).status_code == 201
        for role, run_id in zip(("baseline", "variant"), runs, strict=False):
            added = {"run_id": run_id, "role": role}
            answer = client.post("/v1/experiments/v1/runs", json=added)
            assert answer.status_code == 200, answer.text


@pytest.mark.parametrize(
    ("last", "steps"),
    [(1, ["0", "1"]), (3, ["0", "1", "2", "3"]), (40, ["0", "10", "20", "30", "40"])],
)
def test_learning_curves_are_marked_at_whole_steps_once_each(last: int, steps: list[str]) -> None:
    curve = [{"step": step, "value": 0.5, "low": 0.4, "high": 0.6} for step in (0, last)]
    drawn = learning_curves([{"arm": "a", "curve": curve}])
    assert drawn is not None
    assert [name for _, name in drawn["ticks"]] == steps
    assert drawn["ticks"][-1][0] == drawn["right"]


def test_an_experiment_shows_its_arms_verdict_and_curves(
    story: Story, served: Served, browser: httpx.Client
) -> None:
    first, second = learned(story, 0.4), learned(story, 0.9)
    experiment(served, first, second)
    listed = browser.get("/experiments").text
    assert 'href="/experiments/v1"' in listed
    assert "a &lt;b&gt;larger&lt;/b&gt; rate" in listed
    page = browser.get("/experiments/v1").text
    with served.client() as client:
        results = client.get("/v1/experiments/v1/results").json()
    assert results["word"] in page
    assert "The learning rate is too low." in page
    assert f'href="/runs/{first}"' in page
    assert f'href="/runs/{second}"' in page
    assert page.count('class="band"') == len(results["arms"])
    assert "pass@1 by step." in page


def test_an_experiment_shows_the_words_of_its_changelog_entry(
    story: Story, served: Served, browser: httpx.Client
) -> None:
    experiment(served, learned(story, 0.9))
    assert "Changelog entry" not in browser.get("/experiments/v1").text
    entry = {
        "works": ["more <b>passes</b>"],
        "fails": ["the long tasks"],
        "next_steps": ["three seeds"],
        "issues": [{"title": "Slow", "severity": "low", "description": "a minute a step"}],
        "commits": [{"sha": "de6b4b4aa1f0c", "summary": "Enable YaRN"}],
        "pull_request": "lab/repo#7",
        "remarks": "the same tasks",
    }
    with served.client() as client:
        assert client.patch("/v1/experiments/v1", json=entry).status_code == 200
    page = browser.get("/experiments/v1").text
    for words in ("more &lt;b&gt;passes&lt;/b&gt;", "the long tasks", "three seeds", "a minute a"):
        assert words in page
    for words in ("<code>de6b4b4aa1</code> Enable YaRN", "lab/repo#7", "the same tasks"):
        assert words in page
    assert "<td>no clipping</td>" in page


def test_the_changelog_has_each_experiment_with_its_verdict_and_words(
    story: Story, served: Served, browser: httpx.Client
) -> None:
    assert "No experiments yet." in browser.get("/experiments/changelog").text
    first, second = learned(story, 0.4), learned(story, 0.9)
    experiment(served, first, second)
    with served.client() as client:
        client.patch("/v1/experiments/v1", json={"works": ["more <b>passes</b>"]})
        word = client.get("/v1/experiments/v1/results").json()["word"]
    assert 'href="/experiments/changelog"' in browser.get("/experiments").text
    page = browser.get("/experiments/changelog").text
    assert f">{word}</span>" in page
    assert "a &lt;b&gt;larger&lt;/b&gt; rate" in page
    assert "<li>more &lt;b&gt;passes&lt;/b&gt;</li>" in page
    assert page.count(" at step 40") == 2


def test_an_experiment_without_runs_and_no_experiment_say_so(
    served: Served, browser: httpx.Client
) -> None:
    assert "No experiments yet." in browser.get("/experiments").text
    experiment(served)
    assert "No run was added yet" in browser.get("/experiments/v1").text
    assert browser.get("/experiments/v2").status_code == 404


def test_a_campaign_shows_its_cells(served: Served, browser: httpx.Client) -> None:
    assert "No campaigns yet." in browser.get("/campaigns").text
    spec = {
        "name": "tiny models",
        "base": {"name": "base", "data": {"env_keys": ["booking"], "eval_tasks_per_env": 4}},
        "models": [{"name": "a", "source": "builtin:tiny-qwen3-a"}],
        "decodings": [{"name": "sampled", "temperature": 1.0}],
        "repeats": 2,
    }
    with served.client() as client:
        made = client.post("/v1/campaigns", json=spec)
        assert made.status_code == 201, made.text
    path = f"/campaigns/{made.json()['id']}"
    assert f'href="{path}"' in browser.get("/campaigns").text
    page = browser.get(path).text
    assert page.count('<a href="/runs/run_') == 2
    assert "tiny models" in page
    assert browser.get("/campaigns/nothing").status_code == 404


def test_issues_are_listed_with_their_shares(
    story: Story, served: Served, browser: httpx.Client
) -> None:
    assert "No issues yet." in browser.get("/issues").text
    run_id = learned(story, 0.9)
    issue = {
        "title": "Fails",
        "severity": "high",
        "impact": "no reward",
        "symptom": "failure",
        "baseline": f"{run_id}@0",
        "after": f"{run_id}@40",
    }
    with served.client() as client:
        made = client.post("/v1/issues", json=issue)
        assert made.status_code == 201, made.text
    page = " ".join(browser.get("/issues").text.split())
    assert "80.0 %" in page
    assert "10.0 %" in page
    assert "No closed issues." in browser.get("/issues?state=closed").text


def test_the_heat_map_has_a_cell_per_step_and_says_it_in_words(
    story: Story, browser: httpx.Client
) -> None:
    run_id = story.running()
    assert "No training step was completed yet." in browser.get(f"/runs/{run_id}/signal").text
    for step in (1, 2, 3):
        story.push(run_id, story.step(run_id, step, {"booking": 0.5, "github": 1.0}))
    page = browser.get(f"/runs/{run_id}/signal").text
    assert page.count("data-level=") == 6
    assert page.count('data-level="0"') == 3
    assert "step 2: 0% of 4 groups" in page
    assert "The stronger its colour, the larger the share." in page  # in both themes
    assert "too_" not in page.split("Per environment")[-1].split("</table>")[0]


def test_a_stranger_sees_none_of_it(story: Story, served: Served) -> None:
    run_id = learned(story, 0.9)
    experiment(served, run_id)
    with served.browser() as stranger:
        stranger.post("/login", data={"key": served.stranger_key, "next": "/"})
        assert "No experiments yet." in stranger.get("/experiments").text
        assert stranger.get("/experiments/v1").status_code == 404
        assert stranger.get(f"/runs/{run_id}/signal").status_code == 404
