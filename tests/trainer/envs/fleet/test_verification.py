"""What is sent to be graded, and what the answer is worth."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import pickle
import zipfile
from typing import Any

import pytest

from trainer.envs.fleet.verification import (
    Statement,
    archive,
    grade,
    of_source,
    partial_score,
    request,
)

SOURCE = "def helper():\n    pass\n\ndef verify(env, final_answer=None):\n    return 1\n"
DOOMED = "import os\nos._exit(7)\ndef verify(env):\n    return 1\n"
SAID = Statement(answer="42", conversation=[{"role": "user", "content": "hi"}])


def body(
    source: str,
    *,
    with_bundle: bool = True,
    timeout_s: float = 12.5,
    runtime_version: str | None = None,
) -> Any:
    verifier = of_source("task-1", source, runtime_version)
    return request(verifier, "i-1", SAID, with_bundle=with_bundle, timeout_s=timeout_s, region=None)


def kwargs_of(sent: Any) -> Any:
    """Return the arguments that the platform unpickles."""
    return pickle.loads(base64.b64decode(sent["args"]))["kwargs"]


def test_the_archive_depends_on_the_source_alone() -> None:
    assert archive(SOURCE) == archive(SOURCE)
    assert archive(SOURCE) != archive(SOURCE + "\n")
    with zipfile.ZipFile(io.BytesIO(archive(SOURCE))) as packed:
        assert packed.namelist() == ["requirements.txt", "verifier.py"]
        assert packed.read("verifier.py").decode() == SOURCE
        assert packed.read("requirements.txt") == b"fleet-python"


def test_source_is_never_run() -> None:
    sent = body(DOOMED)
    assert base64.b64decode(sent["bundle"]) == archive(DOOMED)


def test_the_request_is_the_one_of_fleets_client() -> None:
    sent = body(SOURCE)
    assert pickle.loads(base64.b64decode(sent["args"])) == {
        "args": (None, {"env": "i-1"}),
        "kwargs": {"final_answer": "42"},
    }
    assert sent["args_array"] == [{"env": "i-1"}]
    assert (sent["function_name"], sent["timeout"]) == ("verify", 12)
    assert sent["sha256"] == hashlib.sha256(base64.b64decode(sent["bundle"])).hexdigest()
    # The fields of fleet-python 0.2.133; a strict server refuses any other.
    always = {"key", "sha256", "args", "args_array", "function_name", "timeout", "region"}
    assert set(sent) == always | {"bundle"}
    assert set(body(SOURCE, with_bundle=False)) == always
    assert body(SOURCE, runtime_version="v2")["verifier_runtime_version"] == "v2"


@pytest.mark.parametrize(
    ("time_left_s", "timeout"),
    [(0.2, 1), (1.0, 1), (299.9, 299), (300.0, 300), (400.0, 300), (math.inf, 30)],
)
def test_the_timeout_is_within_the_contracts_range(time_left_s: float, timeout: int) -> None:
    assert body(SOURCE, timeout_s=time_left_s)["timeout"] == timeout


@pytest.mark.parametrize(
    ("signature", "kwargs"),
    [
        ("verify(env)", {}),
        ("verify(env, final_answer=None)", {"final_answer": "42"}),
        ("validate_task(env, *args, **kwargs)", {"final_answer": "42"}),
        (
            "verify(env, *, conversation)",
            {"conversation": json.dumps([{"role": "user", "content": "hi"}])},
        ),
    ],
)
def test_a_verifier_is_given_what_it_declares(signature: str, kwargs: Any) -> None:
    sent = body(f"async def {signature}:\n    return 1\n")
    assert kwargs_of(sent) == kwargs
    assert sent["function_name"] == signature.split("(")[0]


@pytest.mark.parametrize("source", ["def verify(:", "\0", "x = 1", "(" * 1000])
def test_source_that_cannot_be_read_is_sent_all_the_same(source: str) -> None:
    assert body(source)["function_name"] == "verify"


@pytest.mark.parametrize(
    ("answer", "score", "reason"),
    [
        ({"success": True, "result": 1}, 1.0, None),
        ({"success": True, "result": True}, 1.0, None),
        ({"success": True, "result": 0.25, "stdout": "one\ntwo\n"}, 0.25, "two"),
        ({"success": True, "result": None}, None, "verifier_none"),
        ({"success": True}, None, "verifier_none"),
        ({"success": True, "result": "1"}, None, "verifier_odd"),
        ({"success": True, "result": 2}, None, "verifier_odd"),
        ({"success": True, "result": float("nan")}, None, "verifier_odd"),
        ({"success": False, "result": 1}, None, "verifier_crashed"),
        ({}, None, "verifier_crashed"),
        ({"success": True, "result": 0, "stdout": "JUDGE ERROR: down"}, None, "judge_error"),
        ({"success": True, "result": 0, "stdout": "[X] a\nJUDGE ERROR: out"}, None, "judge_error"),
        # An agent that wrote it, and was quoted, keeps its 0.
        (
            {"success": True, "result": 0, "stdout": "said: JUDGE ERROR: x"},
            0.0,
            "said: JUDGE ERROR: x",
        ),
    ],
)
def test_only_a_number_is_a_score(answer: Any, score: float | None, reason: str | None) -> None:
    found = grade(answer, partial_reward=False)
    assert (found.score, found.reason) == (score, reason)


def checks(errors: list[str] | None, successes: list[str] | None) -> str:
    lines = []
    for kind, found in (("ERROR", errors), ("SUCCESS", successes)):
        if found is not None:
            lines += [f">>> {kind}_ACCUMULATOR >>>", repr(found), f"<<< {kind}_ACCUMULATOR <<<"]
    return "\n".join(lines)


def app(name: str, verdict: int, inner: str) -> str:
    return f"<<< VERIFY_{name} <<<\n{inner}\n>>> VERIFY_{name} >>>\nApp {name}: {verdict}\n"


UNTOUCHED = checks(None, ["[C] Verified no unexpected changes"])


@pytest.mark.parametrize(
    ("stdout", "score"),
    [
        (checks(["[X] a"], ["[C] b", "[C] c"]), 2 / 3),
        (checks(["[X] a"], None), 0.0),
        (checks([], []), None),
        ("nothing printed", None),
        (checks(None, None) + ">>> ERROR_ACCUMULATOR >>>\n__import__('os')\n", None),
        (app("a", 1, checks(None, ["[C] x"])) + app("b", 0, checks(["[X] y"], [])), 0.5),
        (app("a", 0, checks(["[X] x"], [])) + app("c", 1, UNTOUCHED), 0.0),
        (
            app("a", 1, checks(None, ["[C] x"]))
            + app("b", 0, checks(["[X] y"], []))
            + app("c", 1, UNTOUCHED),
            0.5,
        ),
        (app("c", 1, UNTOUCHED), None),
    ],
)
def test_partial_reward_is_the_share_of_apps_or_checks_that_passed(
    stdout: str, score: float | None
) -> None:
    assert partial_score(stdout) == (None if score is None else pytest.approx(score))
    answer: Any = {"success": True, "result": 0, "stdout": stdout}
    assert grade(answer, partial_reward=False).score == 0.0
    assert grade(answer, partial_reward=True).score == pytest.approx(score or 0.0)


@pytest.mark.parametrize(
    "stdout",
    [
        checks(None, ["[C] a"]),
        app("a", 1, checks(None, ["[C] x"])),
        ">>> ERROR_ACCUMULATOR >>>\n[datetime.date(2024, 1, 1)]\n<<< ERROR_ACCUMULATOR <<<\n"
        + checks(None, ["[C] a"]),
    ],
)
def test_a_task_that_was_not_done_never_passes_by_partial_reward(stdout: str) -> None:
    """Its verifier left before it had made every check, or printed what cannot be read."""
    answer: Any = {"success": True, "result": 0, "stdout": stdout}
    assert grade(answer, partial_reward=True).score == 0.0


@pytest.mark.parametrize(
    ("stdout", "reason"),
    [
        (checks(["[X] no such booking", "[X] b"], ["[C] c"]), "[X] no such booking"),
        ("looking\nno such booking\n" + checks([], ["[C] c"]), "no such booking"),
        ("no such booking\n" + checks(None, ["[C] c"]) + "\n", "no such booking"),
        (checks([], ["[C] c"]), None),
        (app("a", 1, UNTOUCHED) + app("b", 0, checks(["[X] y"], [])), "[X] y"),
        ("", None),
    ],
)
def test_the_reason_of_a_failed_grade_is_what_its_verifier_found(
    stdout: str, reason: str | None
) -> None:
    answer: Any = {"success": True, "result": 0, "stdout": stdout}
    assert grade(answer, partial_reward=False).reason == reason
