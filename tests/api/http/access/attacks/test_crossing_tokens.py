"""Random requests with the tokens of machines, lineage, files, streams and Slack, over sockets.

`test_crossing.py` has every route with keys of every role; here is what a project has besides keys.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from api.http.slack.commands import COMMANDS
from api.tables import Project, Runner
from api.tables.access.identity import Scope
from hillclimb.protocol.rundir import run_key
from tests.api.fixtures.serving import Served, serve
from tests.api.fixtures.story import PROJECT as OWNER
from tests.api.fixtures.story import START, Story, spec
from tests.api.fixtures.story_fixtures import story, story_url
from tests.api.http.access.attacks.test_tokens import foreign_paths, thiefs_run
from tests.api.http.access.conftest import SCOPES_OF, make_key
from tests.api.http.access.test_crossing import MARK, rows_of_owner
from tests.fixtures.factories import spec_body
from tests.fixtures.fake_slack import (
    SIGNING_SECRET,
    TOKEN,
    FakeSlack,
    command,
    run_fake_slack,
    sign,
)

__all__ = ["story", "story_url"]
THIEF = "prj_other"
SEED = 20
Json = dict[str, Any]


@dataclass
class Thief:
    """Somebody with everything that a project gives to its people and machines, but the other's."""

    story: Story
    served: Served
    slack: FakeSlack
    victim: str
    waiting: str
    attempt_id: str
    run_id: str
    tokens: list[str]
    keys: dict[str, str]
    rng: random.Random
    http: httpx.Client = field(init=False)

    def __post_init__(self) -> None:
        self.http = httpx.Client(base_url=self.served.url, timeout=30)
        code = self.send("POST", "/v1/slack/link-codes", "member").json()["code"]
        self.say(f"link {code}")

    def send(self, method: str, path: str, who: str, **options: Any) -> httpx.Response:
        secret = self.keys.get(who) or self.rng.choice(self.tokens)
        headers = {"Authorization": f"Bearer {secret}"} | options.pop("headers", {})
        return self.http.request(method, path, headers=headers, **options)

    def say(self, words: str) -> httpx.Response:
        """Send a command of Slack; the reply is what the fake Slack got."""
        num = len(self.slack.whispers)
        request = sign(command(words, slack=self.slack, user="U0THIEF"))
        answer = self.http.post("/v1/slack/commands", content=request.body, headers=request.headers)
        texts = json.dumps(self.slack.whispers[num:])
        return httpx.Response(answer.status_code, text=texts)

    def path(self, *rest: str) -> str:
        return "/".join((self.rng.choice(foreign_paths(self.victim)), *rest))

    def id(self) -> str:
        return self.rng.choice([self.victim, self.victim, self.waiting])


def ingest(thief: Thief) -> httpx.Response:
    """Events that name the owner's files and ids; a number that was recorded changes nothing."""
    rng, number = thief.rng, thief.rng.randrange(1, 40)
    place = {"trainer_seq": number, "at": START.isoformat(), "step": rng.randrange(50)}
    kinds: list[Json] = [
        {"type": "checkpoint.saved", "path": thief.path("checkpoints/global_step_40/attempt-1"),
         "manifest_sha256": "0" * 64, "size_bytes": 1},
        {"type": "checkpoint.deleted", "path": thief.path("checkpoints/global_step_40/attempt-1")},
        {"type": "checkpoint.qualified", "path": "checkpoints/global_step_40/attempt-1",
         "duration_s": 1.0},
        {"type": "prompts.rendered", "version": "p", "max_input_length": 9, "environments": {},
         "file": thief.path("attempt-1/prompts.jsonl.gz")},
        {"type": "tracking.started", "tracker": "wandb", "name": thief.victim,
         "url": f"https://example.org/{thief.victim}"},
        {"type": "run.warning", "code": "x", "message": thief.victim},
    ]  # fmt: skip
    body = {"events": [place | rng.choice(kinds)]}
    return thief.send("POST", "/v1/ingest", "token", json=body)


def node(thief: Thief) -> httpx.Response:
    """The routes of nodes, with one's own token or a guessed code, and the owner's attempt."""
    end = {"reason": "completed", "message": "", "last_trainer_seq": 0}
    claim = {
        "attempt_id": thief.attempt_id, "code": "hcx_" + "0" * 64, "nonce": "n" * 20,
        "rank": thief.rng.randrange(3), "member": "m",
    }  # fmt: skip
    path, body = thief.rng.choice(
        [("/v1/attempts/claim", claim), ("/v1/attempts/heartbeat", {"is_preparing": True})]
        * 5 + [("/v1/attempts/end", end)]
    )  # fmt: skip
    return thief.send("POST", path, "token", json=body)


def runner(thief: Thief) -> httpx.Response:
    """The routes of runners with the owner's runner and attempts, in paths and in bodies."""
    with thief.story.database.transaction() as session:
        own = [r.id for r in session.query(Runner).filter_by(project_id=THIEF)]
    base = f"/v1/runners/{thief.rng.choice([thief.story.runner_id, *own])}"
    attempts = {"attempts": [thief.attempt_id]}
    end = {"reason": "cancelled_by_user", "message": "x", "last_trainer_seq": 0}
    path, body = thief.rng.choice(
        [
            ("/v1/runners", {"name": "box", "hostname": "box", "slots": 8} | attempts),
            (f"{base}/heartbeat", attempts | {"draining": False}),
            (f"{base}/claim", None),
            (f"{base}/attempts/{thief.attempt_id}/end", end),
        ]
    )
    return thief.send("POST", path, "runner", json=body)


def file(thief: Thief) -> httpx.Response:
    """Files of one's own run at paths that lead to the owner's, and of the owner's run itself."""
    run = thief.rng.choice([thief.run_id, thief.victim])
    way = thief.path(thief.rng.choice(["manifest.json", "attempt-1/logs/000001.log", "spec.json"]))
    step = thief.rng.randrange(50)
    path = thief.rng.choice(
        [
            f"checkpoints/{step}", f"checkpoints/40/files/{way}", f"checkpoints/{step}/files/{way}",
            f"trajectories/{way}", f"tokens/{way}", "prompts", "exports/rollouts", "exports/skyrl",
            "exports/tracking", "capsule", "logs?attempt=1", "logs?text=crownjewel", "events",
            "timeline", "evals", "metrics?names=*", "messages",
        ]
    )  # fmt: skip
    headers = {"Range": "bytes=1-"} if thief.rng.random() < 0.2 else {}
    return thief.send("GET", f"/v1/runs/{run}/{path}", "viewer", headers=headers)


def stream(thief: Thief) -> httpx.Response:
    """The stream of the owner's run, or of one's own that ended, from a position of the owner's."""
    run = thief.rng.choice([thief.victim, thief.waiting, thief.run_id])
    headers = {"Last-Event-ID": str(thief.rng.randrange(-1, 2**33))}
    secret = thief.keys["viewer"]
    headers["Authorization"] = f"Bearer {secret}"
    with thief.http.stream("GET", f"/v1/runs/{run}/events/stream", headers=headers) as answer:
        first = next(answer.iter_bytes(), b"") if run == thief.run_id else answer.read()
    return httpx.Response(answer.status_code, content=first)


def lineage(thief: Thief) -> httpx.Response:
    """Runs, campaigns, experiments and comparisons that name the owner's checkpoints and runs."""
    run, step = thief.id(), thief.rng.choice([0, 40])
    resumed = {"run_id": run, "step": 40, "attempt": 1}
    source = {"source": f"run:{run}" + thief.rng.choice(["", "@40", "@40/attempt-1"])}
    specs = [
        spec_body(lineage={"resumed_from": resumed}),
        spec_body(lineage={"resumed_from": resumed}, kind="eval"),
        spec_body(lineage={"forked_from": {"run_id": run, "step": 40}}),
        spec_body(model=source),
        spec_body(kind="sft", sft={"rollouts_of": run}),
        spec_body(model={"source": f"/data/../blobs/runs/{run}"}),
        spec_body(data={"dataset": "vault@1"}),
    ]
    base = {"data": {"env_keys": ["booking"], "eval_tasks_per_env": 8}}
    models = [{"name": "m", "checkpoint": f"{run}@{step}"}, {"name": "m", **source}]
    sweep = {"base": thief.rng.choice(specs), "seeds": [1]}
    requests: list[tuple[str, str, Json | None]] = [
        *(("POST", "/v1/runs", each) for each in specs),
        *(("POST", "/v1/runs/plan", each) for each in specs),
        ("POST", f"/v1/runs/{run}/fork", {"step": 40, "changes": {"optimizer.lr": 1e-4}}),
        ("POST", f"/v1/runs/{thief.run_id}/fork", {"changes": {"model.source": source["source"]}}),
        ("POST", f"/v1/runs/{thief.run_id}/fork", {"changes": {"lineage.resumed_from": resumed}}),
        ("POST", f"/v1/runs/{run}/resume", None),
        ("POST", f"/v1/runs/{run}/cancel", None),
        ("POST", f"/v1/runs/{run}/budget", {"usd": 1.0}),
        ("PATCH", f"/v1/runs/{run}", {"note": "stolen"}),
        ("POST", f"/v1/runs/{run}/rescorings", {"split": "eval"}),
        ("POST", f"/v1/runs/{run}/patterns/searches", {"split": "eval"}),
        ("POST", "/v1/campaigns", {"name": "c", "base": base, "models": models[:1]}),
        ("POST", "/v1/campaigns", {"name": "c", "base": base, "models": models[1:]}),
        ("POST", "/v1/experiments", {"key": f"k{thief.rng.random()}", "title": "t",
                                     "hypothesis": "h", "baseline": run}),
        ("POST", "/v1/experiments/own/runs", {"run_id": run, "role": "variant"}),
        ("POST", "/v1/experiments/own/sweep", sweep),
        ("POST", "/v1/issues", {"title": "t", "severity": "critical",
                                "baseline": f"{run}@{step}"}),
        ("GET", f"/v1/compare?a={thief.run_id}&b={run}@{step}", None),
        ("GET", f"/v1/compare?a={run}&b={thief.run_id}", None),
    ]  # fmt: skip
    method, path, body = thief.rng.choice(requests)
    return thief.send(method, path, thief.rng.choice(["admin", "member"]), json=body)


def slack(thief: Thief) -> httpx.Response:
    """Commands of a person who is linked to a member's key of the thief's project."""
    name = thief.rng.choice([each for each in COMMANDS if each not in ("link", "help", "run")])
    words = thief.rng.choice(
        [thief.id(), f"{thief.id()}@40", "@last", f"{thief.run_id} {thief.id()}"]
    )
    more = thief.rng.choice(["", " optimizer.lr=1e-4", " model.source=run:" + thief.id()])
    return thief.say(f"{name} {words}{more}")


WAYS: dict[Callable[[Thief], httpx.Response], int] = {
    ingest: 5, node: 2, runner: 3, file: 6, stream: 2, lineage: 8, slack: 2,
}  # fmt: skip


@pytest.fixture
def thief(story: Story, story_url: str, tmp_path: Path) -> Iterator[Thief]:
    """The owner's run with evaluation, checkpoint and files, and a thief with a project."""
    with run_fake_slack() as fake:
        settings = {
            "slack_signing_secret": SIGNING_SECRET, "slack_bot_token": TOKEN,
            "slack_api_base_url": fake.base_url, "requests_per_minute": "1000000",
            "wrong_keys_per_minute": "1000000",
        }  # fmt: skip
        with serve(story_url, story.database, tmp_path / "blobs", **settings) as served:
            made = prepared(story, served, fake, tmp_path / "blobs")
            with closing(made.http):
                yield made


def prepared(story: Story, served: Served, fake: FakeSlack, blobs: Path) -> Thief:
    with story.database.transaction() as session:
        session.merge(Project(id=THIEF, name=THIEF))
    victim = story.running(spec(name=MARK))
    story.push(victim, story.evaluation(victim, 40, {"booking": 0.5}, tasks=8))
    story.push(victim, story.checkpoint(victim, 40))
    waiting = story.submit(spec(name=MARK))
    files = {
        "checkpoints/global_step_40/attempt-1/manifest.json": json.dumps({MARK: 1}).encode(),
        "attempt-1/trajectories/step.jsonl.gz": gzip.compress(f'{{"{MARK}": 1}}\n'.encode()),
        "attempt-1/prompts.jsonl.gz": gzip.compress(f'{{"{MARK}": 1}}\n'.encode()),
        "attempt-1/logs/000001.log": MARK.encode(),
        "spec.json": MARK.encode(),
    }
    for name, content in files.items():
        path = blobs / run_key(victim, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    own = [story.submit(spec(name=f"own{n}"), project_id=THIEF) for n in range(3)]
    tokens = [thiefs_run(story.database, each, THIEF).attempt_token for each in own]
    roles = ("admin", "member", "viewer", "runner")
    keys = {role: make_key(story.database, SCOPES_OF[role], project_id=THIEF) for role in roles}
    assert Scope.OPERATOR not in SCOPES_OF["admin"]
    made = Thief(
        story, served, fake, victim, waiting, story.plans[victim].attempt_id, own[0], tokens, keys,
        random.Random(SEED),
    )  # fmt: skip
    experiment = {"key": "own", "title": "t", "hypothesis": "h"}
    assert made.send("POST", "/v1/experiments", "member", json=experiment).status_code == 201
    return made


def digests(folder: Path, run_id: str) -> dict[str, str]:
    """Return the SHA-256 of every blob of a run."""
    files = sorted(each for each in (folder / "runs" / run_id).rglob("*") if each.is_file())
    return {str(each): hashlib.sha256(each.read_bytes()).hexdigest() for each in files}


def cross(thief: Thief, blobs: Path, number: int) -> None:
    """Send random requests of every way; the owner's rows and blobs stay as they are."""
    rows, files = rows_of_owner(thief.story.database), digests(blobs, thief.victim)
    assert rows["runs"]
    assert rows["checkpoints"]
    assert len(files) == 5
    ways = [*WAYS, *thief.rng.choices([*WAYS], weights=[*WAYS.values()], k=number - len(WAYS))]
    statuses: dict[str, set[int]] = {}
    for count, way in enumerate(ways):
        answer = way(thief)
        content = answer.content
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        shown = (f"seed {SEED}, request {count}", way.__name__, answer.status_code, content[:500])
        assert answer.status_code < 500, shown
        assert MARK.encode() not in content, shown
        statuses.setdefault(way.__name__, set()).add(answer.status_code)
    assert rows_of_owner(thief.story.database) == rows, f"seed {SEED}"
    assert digests(blobs, thief.victim) == files, f"seed {SEED}"
    # Each way does lead somewhere with what is one's own.
    for name in ("ingest", "runner", "slack"):
        assert min(statuses[name]) < 300, statuses


@pytest.mark.invariant("tokens of machines, lineage and Slack read and change no other project")
def test_tokens_files_lineage_streams_and_slack_cross_into_no_other_project(
    thief: Thief, tmp_path: Path
) -> None:
    cross(thief, tmp_path / "blobs", 120)


@pytest.mark.long
def test_ten_thousand_random_requests_cross_into_no_other_project(
    thief: Thief, tmp_path: Path
) -> None:
    cross(thief, tmp_path / "blobs", 10_000)


def test_the_owners_own_requests_lead_there(thief: Thief, tmp_path: Path) -> None:
    """Else nothing above would say anything."""
    thief.keys = {role: make_key(thief.story.database, SCOPES_OF[role], project_id=OWNER)
                  for role in thief.keys}  # fmt: skip
    run = f"/v1/runs/{thief.victim}"
    for path in (run, f"{run}/checkpoints/40", f"{run}/logs?attempt=1", f"{run}/capsule"):
        answer = thief.send("GET", path, "viewer")
        assert MARK.encode() in answer.content or path.endswith("capsule"), path
    fork = thief.send("POST", f"{run}/fork", "member", json={"changes": {}})
    assert fork.status_code == 201, fork.text
