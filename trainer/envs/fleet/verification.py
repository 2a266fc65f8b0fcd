"""Requests to the platform's verifiers, and the interpretation of their responses.

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
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import JsonValue

from hillclimb.environment.base import Grade
from trainer.envs.fleet.wire.api import Json

VERIFY = "verify"
REGION = "us-west-1"
REQUIREMENTS = "fleet-python"
"""The bundle's `requirements.txt`; the platform installs it before it runs the verifier."""
SHORTEST_TIMEOUT_S, LONGEST_TIMEOUT_S, USUAL_TIMEOUT_S = 1, 300, 30
"""Range of a verifier's timeout in the contract (seconds), and the value of Fleet's own client."""
_JUDGE_ERROR = re.compile(r"^JUDGE ERROR:", re.MULTILINE)
"""Output of a failed judge, at the start of a line. Within a line it may quote the agent, who could
avoid a 0 by it."""
CRASHED, JUDGED, NONE, ODD = "verifier_crashed", "judge_error", "verifier_none", "verifier_odd"
"""Reasons of a missing grade although the verifier's server responded."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
_APP = re.compile(r"^App ([^\s:]+): ([01](?:\.0+)?)\s*$", re.MULTILINE)
_UNCHANGED = "no unexpected changes"
_OPEN_ERRORS = ">>> ERROR_ACCUMULATOR >>>"
_ERRORS, _SUCCESSES = (
    re.compile(rf">>> {kind}_ACCUMULATOR >>>\n.*?\n<<< {kind}_ACCUMULATOR <<<", re.DOTALL)
    for kind in ("ERROR", "SUCCESS")
)
"""Printed lists of checks with their marker lines."""
_MARKER = re.compile(r"(?P<way>>>>|<<<) \w\S* (?P=way)$")
MAX_REASON = 200
"""Most characters of a reason."""


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


def may_pass(answer: Json) -> bool:
    """Tell whether a retry may help: the verifier crashed, or its judge failed."""
    return answer.get("success") is not True or _judge_is_out(str(answer.get("stdout") or ""))


def grade(answer: Json, *, partial_reward: bool) -> Grade:
    """Return the grade in the platform's response. Only a number is a score."""
    stdout = str(answer.get("stdout") or "")
    if _judge_is_out(stdout):
        return Grade(score=None, reason=JUDGED)
    if answer.get("success") is not True:
        return Grade(score=None, reason=CRASHED)
    result = answer.get("result")
    if result is None:
        return Grade(score=None, reason=NONE)
    if not isinstance(result, (bool, int, float)) or not 0.0 <= result <= 1.0:
        return Grade(score=None, reason=ODD)
    score = float(result)
    if score == 0.0 and partial_reward:
        share = partial_score(stdout)
        # In a failed task each printed check may have passed: its verifier returned early.
        score = share if share is not None and share < 1.0 else 0.0
    return Grade(score=score, reason=_complaint(stdout) if score < 1.0 else None)


def _judge_is_out(stdout: str) -> bool:
    return _JUDGE_ERROR.search(stdout) is not None


def partial_score(stdout: str) -> float | None:
    """Return the share of checks that passed, as Fleet's verifiers print them.

    None where they print none, or a list of failed checks that cannot be parsed.

    Several apps: the share of apps that passed, without those whose only check was that nothing
    changed. One app: checks passed over checks made.
    """
    apps = _APP.findall(stdout)
    if apps:
        real = [(name, verdict) for name, verdict in apps if not _is_idle(stdout, name)]
        return sum(float(verdict) >= 1.0 for _, verdict in real) / len(real) if real else None
    errors, successes = _checks(stdout, "ERROR"), _checks(stdout, "SUCCESS")
    if (errors is None and _OPEN_ERRORS in stdout) or (errors is None and successes is None):
        return None
    num_errors, num_successes = len(errors or []), len(successes or [])
    total = num_errors + num_successes
    return num_successes / total if total else None


def _is_idle(stdout: str, app: str) -> bool:
    """Tell whether an app's only task was to stay unchanged, and it did."""
    block = re.search(
        rf"<<< VERIFY_{re.escape(app)} <<<\n(.*?)\n>>> VERIFY_{re.escape(app)} >>>",
        stdout,
        re.DOTALL,
    )
    if block is None or _checks(block[1], "ERROR"):
        return False
    checks = _checks(block[1], "SUCCESS")
    return bool(checks) and all(_UNCHANGED in str(check).lower() for check in checks or [])


def _checks(stdout: str, kind: str) -> list[object] | None:
    """Return a printed list of checks; only literals are parsed."""
    match = re.search(
        rf">>> {kind}_ACCUMULATOR >>>\n(.*?)\n<<< {kind}_ACCUMULATOR <<<", stdout, re.DOTALL
    )
    if match is None:
        return None
    try:
        checks = ast.literal_eval(match[1].strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return checks if isinstance(checks, list) else None


def _complaint(stdout: str) -> str | None:
    """Return the first failed check that a verifier printed, else its last line.

    Marker lines and passed checks do not count.
    """
    errors = _checks(stdout, "ERROR")
    if errors:
        return str(errors[0])[:MAX_REASON]
    output = _SUCCESSES.sub("", stdout)
    if errors is not None:
        output = _ERRORS.sub("", output)
    written = (line.strip() for line in output.splitlines())
    lines = [line for line in written if line and not _MARKER.match(line)]
    return lines[-1][:MAX_REASON] if lines else None


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
