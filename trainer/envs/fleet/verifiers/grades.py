"""Grades in the platform's responses to `POST /v1/verifiers/execute`.

What a verifier printed is parsed as text; only literals are evaluated.
"""

from __future__ import annotations

import ast
import json
import math
import re
from dataclasses import replace

from pydantic import JsonValue

from hillclimb.environment.base import Grade
from trainer.envs.fleet.wire.api import Json

_JUDGE_ERROR = re.compile(r"^JUDGE ERROR:", re.MULTILINE)
"""Output of a failed judge, at the start of a line. Within a line it may quote the agent, who could
avoid a 0 by it."""
CRASHED, JUDGED, NONE, ODD = "verifier_crashed", "judge_error", "verifier_none", "verifier_odd"
"""Reasons of a missing grade although the verifier's server responded."""
_APP = re.compile(r"^App (\S+): (\d+)$", re.MULTILINE)
_IDLE_MARKERS = ("no unexpected changes", "no filesystem changes", "no-unexpected-envelopes")
"""Texts, in lower case, of checks that pass where the task has nothing to do in an app; the list is
OpenEnv's."""
_OPEN_ERRORS = ">>> ERROR_ACCUMULATOR >>>"
_ERRORS, _SUCCESSES = (
    (f">>> {kind}_ACCUMULATOR >>>\n", f"\n<<< {kind}_ACCUMULATOR <<<")
    for kind in ("ERROR", "SUCCESS")
)
"""Marker lines around a printed list of checks. They are searched as plain text: a regex reads the
whole output again for each first marker of an output that repeats it."""
MAX_APPS = 200
"""Apps of one task whose verdicts count."""
_MARKER = re.compile(r"(?P<way>>>>|<<<) \w\S* (?P=way)$")
MAX_REASON, MAX_DETAIL, MAX_EXECUTION_ID = 200, 500, 200
"""Most characters of a reason, of the cause in words, and of an execution's name."""


def may_pass(answer: Json) -> bool:
    """Tell whether a retry may help: the verifier crashed, or its judge failed."""
    return answer.get("success") is not True or _judge_is_out(str(answer.get("stdout") or ""))


def grade(answer: Json, *, partial_reward: bool) -> Grade:
    """Return the grade in the platform's response, or the reason why there is none."""
    read = _read(answer, partial_reward=partial_reward)
    execution_id = answer.get("execution_id")
    if not isinstance(execution_id, str) or not execution_id:
        return read
    return replace(read, verifier_execution_id=execution_id[:MAX_EXECUTION_ID])


def _read(answer: Json, *, partial_reward: bool) -> Grade:
    stdout = str(answer.get("stdout") or "")
    if _judge_is_out(stdout):
        return Grade(score=None, reason=JUDGED, detail=_judge_error(stdout))
    if answer.get("success") is not True:
        return Grade(score=None, reason=CRASHED, detail=_cause(answer.get("error")))
    result = answer.get("result")
    if result is None:
        return Grade(score=None, reason=NONE)
    score = _score(result)
    if score is None:
        detail = f"the verifier returned {json.dumps(result, ensure_ascii=False)}"
        return Grade(score=None, reason=ODD, detail=detail[:MAX_DETAIL])
    share = partial_score(stdout) if score == 0.0 and partial_reward else None
    if share is not None:
        # In a failed task each printed check may have passed: its verifier returned early.
        score = share if share < 1.0 else 0.0
    reason = _complaint(stdout) if score < 1.0 else None
    return Grade(score=score, reason=reason, passed_every_check=share == 1.0)


def _score(result: JsonValue) -> float | None:
    """Return a verifier's result as a score; None for anything but a number from 0 up.

    A number in text counts, as for OpenEnv, and so does one under `score`, as for Fleet's client.
    What is above 1 is a pass.
    """
    value = result.get("score") if isinstance(result, dict) else result
    if not isinstance(value, (str, int, float)):
        return None
    try:
        score = float(value)
    except (ValueError, OverflowError):
        return None
    return min(score, 1.0) if math.isfinite(score) and score >= 0.0 else None


def _cause(error: JsonValue) -> str | None:
    """Return type and message of a crashed verifier's error; its traceback is long and left out."""
    if not isinstance(error, dict):
        return str(error)[:MAX_DETAIL] if error else None
    parts = (error.get("type"), error.get("message"))
    return ": ".join(str(part) for part in parts if part)[:MAX_DETAIL] or None


def _judge_is_out(stdout: str) -> bool:
    return _JUDGE_ERROR.search(stdout) is not None


def _judge_error(stdout: str) -> str:
    """Return the line that a failed judge printed."""
    lines = (line for line in stdout.splitlines() if _JUDGE_ERROR.match(line))
    return next(lines, "")[:MAX_DETAIL]


def partial_score(stdout: str) -> float | None:
    """Return the share of checks that passed, as Fleet's verifiers print them.

    None where they print none, or a list of failed checks that cannot be parsed.

    Several apps: the share of apps that passed, without those that passed and had nothing to do,
    as OpenEnv counts them. One app: checks passed over checks made.
    """
    apps = _APP.findall(stdout)[:MAX_APPS]
    if apps:
        passed = [verdict == "1" for name, verdict in apps if not _is_idle(stdout, name, verdict)]
        return sum(passed) / len(passed) if passed else None
    errors, successes = _checks(stdout, _ERRORS), _checks(stdout, _SUCCESSES)
    if (errors is None and _OPEN_ERRORS in stdout) or (errors is None and successes is None):
        return None
    num_errors, num_successes = len(errors or []), len(successes or [])
    total = num_errors + num_successes
    return num_successes / total if total else None


def _is_idle(stdout: str, app: str, verdict: str) -> bool:
    """Tell whether an app passed, and any of its passed checks says that there was nothing to do.

    The verdict of an app is over all its checks; one such check drops the app.
    """
    block = _between(stdout, f"<<< VERIFY_{app} <<<", f">>> VERIFY_{app} >>>")
    successes = _between(block, *_SUCCESSES) if block is not None else None
    if verdict != "1" or successes is None:
        return False
    return any(marker in successes.lower() for marker in _IDLE_MARKERS)


def _between(text: str, first: str, last: str) -> str | None:
    """Return what stands between the first `first` and the next `last`; None without both."""
    begin = text.find(first)
    end = text.find(last, begin + len(first)) if begin >= 0 else -1
    return text[begin + len(first) : end] if end >= 0 else None


def _without(text: str, first: str, last: str) -> str:
    """Return the text without each `first`, the next `last`, and what stands between them."""
    rest, at = [], 0
    while (begin := text.find(first, at)) >= 0:
        end = text.find(last, begin + len(first))
        if end < 0:
            break
        rest.append(text[at:begin])
        at = end + len(last)
    return "".join([*rest, text[at:]])


def _checks(stdout: str, markers: tuple[str, str]) -> list[object] | None:
    """Return a printed list of checks; only literals are parsed."""
    printed = _between(stdout, *markers)
    if printed is None:
        return None
    try:
        checks = ast.literal_eval(printed.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return checks if isinstance(checks, list) else None


def _complaint(stdout: str) -> str | None:
    """Return the first failed check that a verifier printed, else its last line.

    Marker lines and passed checks do not count.
    """
    errors = _checks(stdout, _ERRORS)
    if errors:
        return str(errors[0])[:MAX_REASON]
    output = _without(stdout, *_SUCCESSES)
    if errors is not None:
        output = _without(output, *_ERRORS)
    written = (line.strip() for line in output.splitlines())
    lines = [line for line in written if line and not _MARKER.match(line)]
    return lines[-1][:MAX_REASON] if lines else None
