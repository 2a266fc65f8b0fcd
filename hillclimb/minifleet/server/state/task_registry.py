"""Registry of the account's tasks: minifleet's own, and clients' changes and additions."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel, ConfigDict, JsonValue

from hillclimb.minifleet.catalog import APPS, find_task
from hillclimb.minifleet.export import VERSION, task_row
from hillclimb.minifleet.server.problems import FleetProblem, not_found
from hillclimb.minifleet.server.settings import TEAM_ID
from hillclimb.minifleet.tasks import minifleet_tasks

CREATED_AT = "2026-01-01T00:00:00+00:00"
"""Minifleet's tasks are a function of their keys, so they have no time of creation."""
MAX_BUNDLES = 10_000
"""Remembered bundles: each upload of Fleet's own client has another hash, as it contains a time."""
Row = dict[str, JsonValue]


def source_hash(source: str) -> str:
    """Return the SHA-256 of verifier source, in hexadecimal."""
    return hashlib.sha256(source.encode()).hexdigest()


class TaskUpdate(BaseModel):
    """Body of `PUT /v1/tasks/{key}`."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    prompt: str | None = None
    verifier_code: str | None = None
    metadata: dict[str, JsonValue] | None = None


class NewTask(BaseModel):
    """Body of `POST /v1/tasks`, with both spellings of its fields."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    key: str
    prompt: str
    env_id: str | None = None
    environment_id: str | None = None
    data_id: str | None = None
    data_version: str | None = None
    env_variables: dict[str, JsonValue] | None = None
    verifier_func: str | None = None
    metadata: dict[str, JsonValue] | None = None


class TaskRegistry:
    """Tasks by key; clients' changes are in memory, over the tasks that the keys generate."""

    def __init__(self, tasks_per_env: int) -> None:
        self._per_env = tasks_per_env
        self._overrides: dict[str, Row] = {}
        self._keys_by_env: dict[str, tuple[str, ...]] = {}
        self._hashes: dict[str, str] = {}
        self._bundles: OrderedDict[str, str] = OrderedDict()

    def key_of_hash(self, sha256: str) -> str | None:
        """Return the task whose verifier source has this hash, among the tasks read so far."""
        return self._hashes.get(sha256)

    def key_of_bundle(self, sha256: str) -> str | None:
        """Return the task whose verifier was uploaded in a bundle of this hash."""
        return self._bundles.get(sha256)

    def remember_bundle(self, sha256: str, key: str) -> None:
        """Remember that the bundle of this hash holds the verifier of a task."""
        self._bundles[sha256] = key
        if len(self._bundles) > MAX_BUNDLES:
            self._bundles.popitem(last=False)

    def row(self, key: str) -> Row:
        """Return a task in the form of Fleet's `TaskResponse`.

        Raises:
            Problem: 404, no task has this key.
        """
        row = self._overrides.get(key)
        if row is None:
            task = find_task(key)
            if task is None:
                raise not_found("Task", key)
            row = _response(task_row(task))
        source = row["verifier_func"]
        if isinstance(source, str):
            self._hashes.setdefault(source_hash(source), key)
        return row

    def source(self, key: str) -> str | None:
        """Return the verifier source of a task; None without such a task or source."""
        try:
            source = self.row(key)["verifier_func"]
        except FleetProblem:
            return None
        return source if isinstance(source, str) else None

    def listing(
        self, env_key: str | None, keys: Sequence[str], data: tuple[str | None, str | None]
    ) -> list[Row]:
        """Return the tasks of `keys`, or the default ones; unknown keys are left out.

        `data`: required id and version of a task's data, None for any.
        """
        names: Iterable[str] = keys or self._default_keys(env_key)
        rows = []
        for name in names:
            try:
                row = self.row(name)
            except FleetProblem:
                continue
            if env_key is not None and row["environment_id"] != env_key:
                continue
            constraints = zip(("data_id", "data_version"), data, strict=True)
            if all(value is None or row[field] == value for field, value in constraints):
                rows.append(row)
        return rows

    def update(self, key: str, change: TaskUpdate) -> Row:
        """Change a task.

        Raises:
            Problem: 404, there is no such task.
        """
        row = dict(self.row(key))
        if change.prompt is not None:
            row["prompt"] = change.prompt
        if change.metadata is not None:
            row["metadata"] = change.metadata
        if change.verifier_code is not None:
            row |= _verifier(key, change.verifier_code)
        self._overrides[key] = row
        return row

    def add(self, new: NewTask) -> Row:
        """Add a task, or replace one that was added.

        Raises:
            Problem: 400, its environment is not served.
        """
        env_key = new.env_id or new.environment_id or ""
        if env_key not in APPS:
            raise FleetProblem(400, f"Environment '{env_key}' not found")
        row: Row = {
            "key": new.key,
            "prompt": new.prompt,
            "team_id": TEAM_ID,
            "environment_id": env_key,
            "created_at": CREATED_AT,
            "version": VERSION,
            "data_id": new.data_id,
            "data_version": new.data_version,
            "env_variables": new.env_variables or {},
            "metadata": new.metadata or {},
            "verifier_func": None,
        }
        if new.verifier_func:
            row |= _verifier(new.key, new.verifier_func)
        self._overrides[new.key] = row
        return row

    def _default_keys(self, env_key: str | None) -> list[str]:
        names = [key for key in APPS if env_key is None or key == env_key]
        for name in names:
            if name not in self._keys_by_env:
                self._keys_by_env[name] = tuple(
                    task.key
                    for split in ("train", "eval")
                    for task in minifleet_tasks([name], split, self._per_env, seed=0)
                )
        added = [key for key in self._overrides if find_task(key) is None]
        return [key for name in names for key in self._keys_by_env[name]] + added


def _response(row: Mapping[str, JsonValue]) -> Row:
    """Return a row of tasks JSON as a `TaskResponse`, with the row's other fields."""
    answer: Row = {
        **row,
        "team_id": TEAM_ID,
        "environment_id": row["env_key"],
        "created_at": CREATED_AT,
        "version": row["env_version"],
        "data_id": row["data_key"],
    }
    return answer | _verifier(str(row["key"]), str(row["verifier_code"]))


def _verifier(key: str, source: str) -> Row:
    sha256 = source_hash(source)
    return {
        "verifier_code": source,
        "verifier_func": source,
        "verifier_id": key,
        "verifier": {
            "verifier_id": key,
            "key": key,
            "version": 1,
            "sha256": sha256,
            "code": source,
            "created_at": CREATED_AT,
        },
    }
