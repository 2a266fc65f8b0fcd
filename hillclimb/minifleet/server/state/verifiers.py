"""Verifiers over HTTP, without running code from a client.

A client names a verifier by key, by hash, or by its source in a zip file. The source is compared
as bytes with what minifleet exports for the task; pickled arguments are never opened.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from hillclimb.environment.task import Task
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


REQUIREMENTS, REQUIREMENT = "requirements.txt", "fleet-python"
"""A bundle's list of packages, and the one that Fleet's own client always adds to it."""
_VERSION = re.compile(r"[\s<>=!~;\[@]")
"""End of a package's name in a line of requirements."""
UNKNOWN_BUNDLE = 400
"""Status of a hash whose bundle was not uploaded."""


class VerifierFailure(Exception):
    """The verifier did not run; `kind` is the type of the error in the response."""

    kind: str


class NotRegistered(VerifierFailure):
    """The client's verifier is none of minifleet's; the message names the remedy."""

    kind = "VerifierNotRegistered"


class RequirementMissing(VerifierFailure):
    """The client's bundle does not require the package that verifiers import."""

    kind = "ModuleNotFoundError"


class InstanceNotRunning(VerifierFailure):
    """The instance has ended."""

    kind = "InstanceNotRunning"


class ExecuteRequest(BaseModel):
    """Body of `POST /v1/verifiers/execute`: the fields of Fleet's own client, and no others.

    `args`, a pickle, is never read.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    key: str | None = None
    sha256: str | None = None
    bundle: str | None = None
    args: str | None = None
    args_array: list[JsonValue] | None = None
    function_name: str | None = None
    timeout: Annotated[int, Field(ge=1, le=300)] | None = None
    region: str | None = None
    metadata: dict[str, JsonValue] | None = None
    comment: str | None = None
    display_src: str | None = None
    verifier_runtime_version: str | None = None

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
        RequirementMissing: its bundle lacks a requirement.
        FleetProblem: 400, only a hash was sent and it is unknown: the bundle is required; 422, the
            hash is not that of the bundle.
    """
    if request.bundle:
        return _uploaded(request.bundle, request.sha256, tasks)
    own = tasks.source(request.key) if request.key else None
    if request.sha256:
        uploaded = find_task(tasks.key_of_bundle(request.sha256) or "")
        if uploaded is not None:
            return _changes(uploaded)
        task_key = tasks.key_of_hash(request.sha256)
        source = tasks.source(task_key) if task_key else own
        if source is None or source_hash(source) != request.sha256:
            raise FleetProblem(UNKNOWN_BUNDLE, "Verifier not found: send its bundle")
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


def _uploaded(bundle: str, sha256: str | None, tasks: TaskRegistry) -> list[Change]:
    """Check a bundle, remember its hash and return the changes that its verifier expects."""
    content = _decoded(bundle)
    digest = hashlib.sha256(content).hexdigest()
    if sha256 not in (None, digest):
        raise FleetProblem(422, f"sha256 is not the hash of the bundle, which is {digest}")
    source, requirements = _read(content)
    task = _task(source)
    if REQUIREMENT not in requirements:
        raise RequirementMissing(
            f"No module named 'fleet': the bundle's {REQUIREMENTS} does not name {REQUIREMENT}"
        )
    tasks.remember_bundle(digest, task.key)
    return _changes(task)


def _expected(source: str) -> list[Change]:
    return _changes(_task(source))


def _task(source: str) -> Task:
    key = graded_task(source)
    task = find_task(key) if key else None
    if task is None or verifier_source(task) != source:
        raise NotRegistered(
            "the verifier's source is not one that minifleet exported, and this server runs no"
            " code that a client sends"
        )
    return task


def _changes(task: Task) -> list[Change]:
    return cast("list[Change]", task.payload["changes"])


def _decoded(bundle: str) -> bytes:
    try:
        return base64.b64decode(bundle, validate=True)
    except ValueError as error:
        raise NotRegistered(f"the bundle is no base64: {error}") from error


def _read(bundle: bytes) -> tuple[str, frozenset[str]]:
    """Return the source in a bundle, and the names of the packages that it requires."""
    try:
        with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
            source = _member(archive, "verifier.py")
            names = archive.namelist()
            lines = _member(archive, REQUIREMENTS) if REQUIREMENTS in names else ""
    except UNREADABLE as error:
        raise NotRegistered(f"the bundle holds no readable verifier.py: {error}") from error
    return source, frozenset(_VERSION.split(line.strip())[0] for line in lines.splitlines())


def _member(archive: zipfile.ZipFile, name: str) -> str:
    with archive.open(archive.getinfo(name)) as file:
        return file.read(MAX_SOURCE).decode()
