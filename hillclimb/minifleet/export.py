"""Minifleet's tasks in Fleet's format, with the source of their verifiers.

The source is a Fleet verifier: one function `verify(env)` over the databases `seed` and
`current`. It grades as `MinifleetEnv.score` does. Hillclimb never runs it: minifleet's
server recognises its bytes and grades with its own code.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from pydantic import JsonValue

from hillclimb.environment.task import Task

VERSION = "v1"
"""Version of every environment and of its data."""

_NAMED = re.compile(r'"""Grade minifleet task ([A-Za-z0-9_./-]{1,200}):')

_SOURCE = '''def verify(env, final_answer=None):
    """Grade minifleet task {key}: 1 when exactly these changes were made, else 0."""
    import json

    expected = {expected}

    def tables(name):
        db = env.db(name)
        found = {{}}
        for (table,) in db.query("SELECT name FROM sqlite_master WHERE type = 'table'").rows:
            answer = db.query('SELECT * FROM "' + table + '"')
            rows = [dict(zip(answer.columns, values)) for values in answer.rows or []]
            rows = [{{k: v for k, v in row.items() if v is not None}} for row in rows]
            found[table] = {{str(row["id"]): row for row in rows}}
        return found

    def met(wanted, change):
        want, have = wanted.get("row", {{}}), change.get("row", {{}})
        return (
            all(wanted.get(part) == change.get(part) for part in ("op", "table", "id"))
            and want.keys() == have.keys()
            and all(
                have[f] in v["any"] if isinstance(v, dict) else have[f] == v
                for f, v in want.items()
            )
        )

    seed, current = tables("seed"), tables("current")
    extra = []
    for table, before in seed.items():
        after = current[table]
        extra += [dict(op="delete", table=table, id=key) for key in before if key not in after]
        for key, row in after.items():
            old = before.get(key)
            if old is None:
                new = {{f: v for f, v in row.items() if f != "id"}}
                extra.append(dict(op="insert", table=table, row=new))
            elif old != row:
                new = {{f: v for f, v in row.items() if old.get(f) != v}}
                extra.append(dict(op="update", table=table, id=key, row=new))
    good, bad = [], []
    for wanted in expected:
        match = next((change for change in extra if met(wanted, change)), None)
        if match is None:
            bad.append("[X] missing: " + wanted["op"] + " in " + wanted["table"])
        else:
            extra.remove(match)
            good.append("[C] " + wanted["op"] + " in " + wanted["table"])
    bad += ["[X] unexpected: " + change["op"] + " in " + change["table"] for change in extra]
    print(">>> ERROR_ACCUMULATOR >>>\\n" + json.dumps(bad) + "\\n<<< ERROR_ACCUMULATOR <<<")
    print(">>> SUCCESS_ACCUMULATOR >>>\\n" + json.dumps(good) + "\\n<<< SUCCESS_ACCUMULATOR <<<")
    return 0 if bad else 1
'''


def verifier_source(task: Task) -> str:
    """Return the task's verifier as Python source; equal tasks give equal bytes."""
    return _SOURCE.format(key=task.key, expected=repr(task.payload["changes"]))


def graded_task(source: str) -> str | None:
    """Return the key of the task that verifier source claims to grade; the claim is unchecked."""
    named = _NAMED.search(source[:1000])
    return named[1] if named else None


def task_row(task: Task) -> dict[str, JsonValue]:
    """Return a task as a row of Fleet's tasks JSON."""
    return {
        "key": task.key,
        "prompt": task.prompt,
        "env_key": task.env_key,
        "env_version": VERSION,
        "data_key": task.key,
        "data_version": VERSION,
        "env_variables": dict(task.env_variables),
        "verifier_code": verifier_source(task),
        "task_modality": "tool_use",
        "difficulty": task.difficulty,
        "metadata": {
            "template": task.template,
            "held_out_template": task.held_out_template,
        },
    }


def tasks_document(tasks: Iterable[Task]) -> dict[str, JsonValue]:
    """Return tasks as Fleet's tasks JSON in its object form."""
    return {"tasks": [task_row(task) for task in tasks]}
