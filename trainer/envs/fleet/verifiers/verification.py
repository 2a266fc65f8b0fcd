"""Verifiers and the requests to run them on the platform; `grades.py` reads the responses.

A verifier's source is data. It is parsed for the arguments of its function, which runs nothing, and
put into an archive whose bytes depend on the source alone; it is never imported, compiled or
executed here.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import io
import json
import math
import pickle
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from trainer.envs.fleet.wire.api import Json

VERIFY = "verify"
REGION = "us-west-1"
REQUIREMENTS = "fleet-python"
"""The bundle's `requirements.txt`; the platform installs it before it runs the verifier."""
SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S, USUAL_TIMEOUT_S = 1, 300, 30
"""Range of a verifier's timeout in the contract (seconds), and the value of Fleet's own client."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """A verifier from its source in a dataset or on the platform."""

    key: str
    sha256: str
    """Hash of the bundle."""
    function_name: str
    bundle: bytes
    """Archive to send where the platform does not have it yet."""
    runtime_version: str | None = None
    """Version of the platform's runtime for verifiers; None: the platform's choice."""
    takes_conversation: bool
    takes_answer: bool


def of_source(key: str, source: str, runtime_version: str | None = None) -> Verifier:
    """Return the verifier of a source, without running it."""
    name, arguments, takes_any = _signature(source)
    bundle = archive(source)
    return Verifier(
        key=key,
        sha256=hashlib.sha256(bundle).hexdigest(),
        function_name=name,
        bundle=bundle,
        runtime_version=runtime_version,
        takes_conversation="conversation" in arguments,
        takes_answer=takes_any or "final_answer" in arguments,
    )


def archive(source: str) -> bytes:
    """Return the zip of a verifier: the same bytes for the same source.

    Fleet's own client writes the time into it, so its hash never hits the platform's cache.
    """
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as packed:
        for name, content in (("requirements.txt", REQUIREMENTS), ("verifier.py", source)):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = 0o644 << 16
            entry.create_system = 3
            packed.writestr(entry, content.encode())
    return target.getvalue()


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Arguments of a verifier beside the state."""

    answer: str | None
    """Argument of `submit_final_answer`; None where it was not called."""
    conversation: Sequence[Mapping[str, JsonValue]]


def request(
    verifier: Verifier,
    instance_id: str,
    statement: Statement,
    *,
    with_bundle: bool,
    timeout_s: float,
    region: str | None,
) -> Json:
    """Return the body of `POST /v1/verifiers/execute`, with the fields of Fleet's own client."""
    kwargs: dict[str, JsonValue] = {}
    if statement.answer is not None and verifier.takes_answer:
        kwargs["final_answer"] = statement.answer
    if verifier.takes_conversation:
        kwargs["conversation"] = json.dumps(list(statement.conversation), ensure_ascii=False)
    # Plain values in the standard pickle are what the platform's unpickler (cloudpickle) reads.
    packed = pickle.dumps({"args": (None, {"env": instance_id}), "kwargs": kwargs}, protocol=4)
    body: Json = {
        "key": verifier.key,
        "sha256": verifier.sha256,
        "args": base64.b64encode(packed).decode(),
        "args_array": [{"env": instance_id}],
        "function_name": verifier.function_name,
        "timeout": _timeout(timeout_s),
        "region": region or REGION,
    }
    if with_bundle:
        body["bundle"] = base64.b64encode(verifier.bundle).decode()
    if verifier.runtime_version:
        body["verifier_runtime_version"] = verifier.runtime_version
    return body


def _timeout(seconds: float) -> int:
    if not math.isfinite(seconds):
        return USUAL_TIMEOUT_S
    return min(max(int(seconds), SHORTEST_TIMEOUT_S), LONGEST_TIMEOUT_S)


def _signature(source: str) -> tuple[str, frozenset[str], bool]:
    """Return name and arguments of the function to call, and whether it takes further ones."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return VERIFY, frozenset(), True
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    functions = [node for node in tree.body if isinstance(node, kinds)]
    if not functions:
        return VERIFY, frozenset(), True
    function = next((each for each in functions if each.name == VERIFY), functions[0])
    args = function.args
    names = frozenset(each.arg for each in (*args.posonlyargs, *args.args, *args.kwonlyargs))
    return function.name, names, args.kwarg is not None
