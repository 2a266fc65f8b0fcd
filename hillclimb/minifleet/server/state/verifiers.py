"""Verifiers over HTTP, without running code from a client.

A client names a verifier by key, by hash, or by its source in a zip file. The source is compared
as bytes with what minifleet exports for the task; pickled arguments are never opened.
"""

from __future__ import annotations

import base64
import io
import json
import lzma
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from pydantic import BaseModel, ConfigDict, JsonValue

from hillclimb.minifleet.catalog import find_task
from hillclimb.minifleet.env import MinifleetEnv
from hillclimb.minifleet.export import graded_task, verifier_source
from hillclimb.minifleet.framework.changes import Change, difference, match_changes
from hillclimb.minifleet.server.problems import FleetProblem
from hillclimb.minifleet.server.state.task_registry import TaskRegistry, source_hash

MAX_SOURCE = 1_000_000
"""Most bytes of verifier source that are read."""
UNREADABLE = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    KeyError,
    OSError,
    RuntimeError,
    ValueError,
)
"""Errors of the standard library for a damaged or unusual zip file (no base64 and no UTF-8 are
`ValueError`, a password and an unknown compression `RuntimeError`)."""


class NotRegistered(Exception):
    """The client's verifier is none of minifleet's; the message names the remedy."""


class ExecuteRequest(BaseModel):
    """Body of `POST /v1/verifiers/execute`; `args`, a pickle, is never read."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    key: str | None = None
    sha256: str | None = None
    bundle: str | None = None
    args_array: list[JsonValue] | None = None
    function_name: str | None = None

    def instance_id(self) -> str:
        """Return the instance to grade.

        Raises:
            Problem: 422, the arguments name none.
        """
        for argument in reversed(self.args_array or []):
            match argument:
                case {"env": str(instance_id)}:
                    return instance_id
        raise FleetProblem(422, 'args_array holds no {"env": instance_id}')


@dataclass(frozen=True, slots=True)
class VerifierResult:
    """The result and the output of a verifier."""

    result: int
    stdout: str


def resolve(request: ExecuteRequest, tasks: TaskRegistry) -> list[Change]:
    """Return the changes that the named verifier expects.

    Raises:
        NotRegistered: the verifier is not one of minifleet's.
        FleetProblem: 400, only a hash was sent and it is unknown: the bundle is required.
    """
    if request.bundle:
        return _expected(_source_in(request.bundle))
    own = tasks.source(request.key) if request.key else None
    if request.sha256:
        task_key = tasks.key_of_hash(request.sha256)
        source = tasks.source(task_key) if task_key else own
        if source is None or source_hash(source) != request.sha256:
            raise FleetProblem(400, "Verifier not found: send its bundle")
        return _expected(source)
    if own is None:
        raise NotRegistered(f"no verifier of minifleet has the key {request.key!r}")
    return _expected(own)


def grade(expected: Sequence[Change], env: MinifleetEnv) -> VerifierResult:
    """Grade an environment's state as `MinifleetEnv.score` does, with the source's output."""
    met, missing, extra = match_changes(expected, difference(*env.tables()))
    bad = [f"[X] missing: {change['op']} in {change['table']}" for change in missing]
    bad += [f"[X] unexpected: {change['op']} in {change['table']}" for change in extra]
    good = [f"[C] {change['op']} in {change['table']}" for change in met]
    stdout = (
        f">>> ERROR_ACCUMULATOR >>>\n{json.dumps(bad)}\n<<< ERROR_ACCUMULATOR <<<\n"
        f">>> SUCCESS_ACCUMULATOR >>>\n{json.dumps(good)}\n<<< SUCCESS_ACCUMULATOR <<<\n"
    )
    return VerifierResult(result=0 if bad else 1, stdout=stdout)


def _expected(source: str) -> list[Change]:
    key = graded_task(source)
    task = find_task(key) if key else None
    if task is None or verifier_source(task) != source:
        raise NotRegistered(
            "the verifier's source is not one that minifleet exported, and this server runs no"
            " code that a client sends"
        )
    return cast("list[Change]", task.payload["changes"])


def _source_in(bundle: str) -> str:
    try:
        with zipfile.ZipFile(io.BytesIO(base64.b64decode(bundle, validate=True))) as archive:
            member = archive.getinfo("verifier.py")
            with archive.open(member) as file:
                return file.read(MAX_SOURCE).decode()
    except UNREADABLE as error:
        raise NotRegistered(f"the bundle holds no readable verifier.py: {error}") from error
