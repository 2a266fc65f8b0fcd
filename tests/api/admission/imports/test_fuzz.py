"""Whatever is sent is imported or refused in a sentence: never an internal error."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

from tests.api.admission.imports.test_capsule import capsule_of, rewritten
from tests.api.fixtures.serving import Served
from tests.api.fixtures.story import Story
from tests.api.results.spending import a_step, an_evaluation
from tests.fixtures.skyrl import DUMP, row, zipped

VALUES: tuple[object, ...] = (
    *(None, True, -1, 0, 10**30, 0.5, "", "x", "\u0000", "\ud800", "x" * 400, [], [0.5], [[]]),
    *({}, {"task_key": "\u0000"}, {"task_key": "t", "max_turns": "9"}, "../..", "2026-01-01"),
)


def bytes_changed(content: bytes, rng: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(rng.randrange(1, 6)):
        changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def value_changed(line: bytes, rng: random.Random) -> bytes:
    """The line with one value, at some depth, replaced."""
    body = json.loads(line)
    target = body
    while True:
        name = rng.choice(sorted(target))
        if not isinstance(target[name], dict) or not target[name] or rng.random() < 0.3:
            break
        target = target[name]
    target[name] = rng.choice(VALUES)
    return json.dumps(body).encode() + b"\n"


def check(served: Served, kind: str, contents: list[bytes]) -> set[int]:
    statuses = set()
    with served.client() as client:
        for content in contents:
            response = client.post(
                f"/v1/imports/{kind}", params={"source": "s"} if kind != "capsule" else {},
                content=content,
            )  # fmt: skip
            statuses.add(response.status_code)
            assert response.status_code in (200, 201, 422), (response.text, content[:500])
            if response.status_code == 422:
                assert response.json()["detail"]
                continue
            run_id = response.json()["id"]
            for path in ("", "/evals", "/trajectories", "/exports/rollouts", "/capsule"):
                read = client.get(f"/v1/runs/{run_id}{path}")
                assert read.status_code in (200, 404), (path, read.text)
    return statuses


def test_dumps(served: Served) -> None:
    rng = random.Random(1)
    path = "global_step_3/github.jsonl"
    rows = [zipped({path: value_changed(row(), rng) + row()}) for _ in range(60)]
    damaged = [bytes_changed(DUMP.read_bytes(), rng) for _ in range(30)]
    assert check(served, "skyrl", rows + damaged) >= {201, 422}


def test_histories(served: Served) -> None:
    rng = random.Random(2)
    line = json.dumps({"step": 1, "metrics": {"eval/github/pass_at_3": 0.5, "a": 1}}).encode()
    assert check(served, "wandb", [value_changed(line, rng) for _ in range(40)]) >= {201, 422}


def test_capsules(served: Served, story: Story) -> None:
    run_id = story.running()
    story.push(run_id, an_evaluation(story, run_id, 0, 0.2), a_step(story, run_id, 1))
    story.finish(run_id, 40)
    content, rng = capsule_of(served, run_id), random.Random(3)

    def change(name: str, *, is_line: bool) -> Callable[[dict[str, bytes]], None]:
        def apply(members: dict[str, bytes]) -> None:
            lines = members[name].splitlines(keepends=True) if is_line else [members[name]]
            chosen = rng.randrange(len(lines))
            lines[chosen] = value_changed(lines[chosen], rng)
            members[name] = b"".join(lines)

        return apply

    changes = [
        *(change("events.jsonl", is_line=True) for _ in range(25)),
        *(change("outcomes.jsonl", is_line=True) for _ in range(25)),
        *(change("spec.json", is_line=False) for _ in range(15)),
        *(change("capsule.json", is_line=False) for _ in range(15)),
    ]
    assert check(served, "capsule", [rewritten(content, each) for each in changes]) >= {201, 422}
