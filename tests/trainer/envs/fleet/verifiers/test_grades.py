"""What the answer of a verifier is worth."""

from __future__ import annotations

from typing import Any

import pytest

from trainer.envs.fleet.verifiers.grades import grade, partial_score


@pytest.mark.parametrize(
    ("answer", "score", "reason"),
    [
        ({"success": True, "result": 1}, 1.0, None),
        ({"success": True, "result": True}, 1.0, None),
        ({"success": True, "result": 0.25, "stdout": "one\ntwo\n"}, 0.25, "two"),
        ({"success": True, "result": None}, None, "verifier_none"),
        ({"success": True}, None, "verifier_none"),
        # As OpenEnv: a number in text, and more than 1. As Fleet's client: under `score`.
        ({"success": True, "result": "1.0"}, 1.0, None),
        ({"success": True, "result": " 0.5 "}, 0.5, None),
        ({"success": True, "result": 2.0}, 1.0, None),
        ({"success": True, "result": {"score": 1.0, "notes": []}}, 1.0, None),
        ({"success": True, "result": {"score": "0"}}, 0.0, None),
        ({"success": True, "result": "done"}, None, "verifier_odd"),
        ({"success": True, "result": ""}, None, "verifier_odd"),
        ({"success": True, "result": "inf"}, None, "verifier_odd"),
        ({"success": True, "result": -0.5}, None, "verifier_odd"),
        ({"success": True, "result": 10**400}, None, "verifier_odd"),
        ({"success": True, "result": float("nan")}, None, "verifier_odd"),
        ({"success": True, "result": [1.0]}, None, "verifier_odd"),
        ({"success": True, "result": {"reward": 1.0}}, None, "verifier_odd"),
        ({"success": True, "result": {"score": {"score": 1.0}}}, None, "verifier_odd"),
        ({"success": True, "result": {"score": None}}, None, "verifier_odd"),
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


LONG = "x" * 600


@pytest.mark.parametrize(
    ("answer", "detail"),
    [
        (
            {
                "success": False,
                "error": {"type": "KeyError", "message": "'bookings'", "traceback": "Traceback"},
            },
            "KeyError: 'bookings'",
        ),
        ({"success": False, "error": {"type": "KeyError", "message": ""}}, "KeyError"),
        ({"success": False, "error": {"message": LONG}}, "x" * 500),
        ({"success": False, "error": "out of memory"}, "out of memory"),
        ({"success": False, "error": {}}, None),
        ({"success": False}, None),
        (
            {"success": True, "result": 0, "stdout": "[X] a\nJUDGE ERROR: no answer\nb"},
            "JUDGE ERROR: no answer",
        ),
        ({"success": True, "result": ["é"]}, 'the verifier returned ["é"]'),
        ({"success": True, "result": LONG}, f'the verifier returned "{LONG}'[:500]),
        ({"success": True, "result": None}, None),
        ({"success": True, "result": 0, "stdout": "no such booking"}, None),
    ],
)
def test_the_cause_of_a_missing_grade_is_in_words(answer: Any, detail: str | None) -> None:
    assert grade(answer, partial_reward=False).detail == detail


def checks(errors: list[str] | None, successes: list[str] | None) -> str:
    lines = []
    for kind, found in (("ERROR", errors), ("SUCCESS", successes)):
        if found is not None:
            lines += [f">>> {kind}_ACCUMULATOR >>>", repr(found), f"<<< {kind}_ACCUMULATOR <<<"]
    return "\n".join(lines)


def app(name: str, verdict: int, inner: str) -> str:
    return f"<<< VERIFY_{name} <<<\n{inner}\n>>> VERIFY_{name} >>>\nApp {name}: {verdict}\n"


DATABASE, FILES, ENVELOPES = (
    "[C] Verified no unexpected changes in the database",
    "[C] No filesystem changes required for this task",
    "[C] No-unexpected-envelopes",
)
FAILED, PASSED = checks(["[X] x"], []), checks(None, ["[C] done"])
UNTOUCHED = checks(None, [DATABASE])


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
    ("stdout", "score"),
    [
        (app("a", 0, FAILED) + app("b", 1, checks(None, [DATABASE])), 0.0),
        (app("a", 0, FAILED) + app("b", 1, checks(None, [FILES])), 0.0),
        (app("a", 0, FAILED) + app("b", 1, checks(None, [ENVELOPES])), 0.0),
        (app("a", 0, FAILED) + app("b", 1, checks(None, [FILES.upper()])), 0.0),
        (app("a", 0, FAILED) + app("b", 1, checks(None, ["[C] real", DATABASE])), 0.0),
        (
            app("a", 1, PASSED)
            + app("b", 1, checks(None, ["[C] real", DATABASE]))
            + app("c", 0, FAILED),
            0.5,
        ),
        (app("a", 1, PASSED) + app("b", 0, FAILED) + app("c", 1, checks(None, [ENVELOPES])), 0.5),
        (app("a", 1, PASSED) + app("b", 0, checks(["[X] y"], [DATABASE])), 0.5),
        (
            app("a", 1, PASSED) + app("b", 1, checks(["[X] y"], [FILES])) + app("c", 0, FAILED),
            0.5,
        ),
        (app("a", 1, checks(["[X] no unexpected changes"], ["x"])) + app("b", 0, FAILED), 0.5),
        (app("a", 1, UNTOUCHED) + app("b", 1, checks(None, [FILES])), None),
        ("App a: 1\nApp b: 0\n", 0.5),
        (f"<<< VERIFY_a <<< {UNTOUCHED} >>> VERIFY_a >>>\nApp a: 1\nApp b: 0\n", 0.0),
        (app("a", 2, PASSED) + app("b", 1, PASSED), 0.5),
        (app("a:b", 1, PASSED) + app("c", 0, FAILED), 0.5),
        ("App a: 1 \nApp b: 0\n", 0.0),
        (app("a", 1, checks(None, [])) + app("b", 0, FAILED), 0.5),
    ],
    ids=[
        *("database", "files", "envelopes", "any case", "one of two checks", "not counted"),
        *("passed, failed and idle", "a marker in a failed app", "a marker beside an error"),
        *("a marker in an error", "all idle", "no blocks", "a block in one line", "a score of 2"),
        *("a colon in a name", "a space at the end", "no checks"),
    ],
)
def test_a_share_of_apps_is_the_one_that_openenv_computes(stdout: str, score: float | None) -> None:
    """The values are those of fleet-ai/OpenEnv at 009c1ed, whose parser was run on each output."""
    assert partial_score(stdout) == score


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


def test_a_grade_names_the_execution_that_gave_it() -> None:
    passed = {"success": True, "result": 1.0, "execution_id": "exec_1f"}
    crashed = {"success": False, "error": {"message": "boom"}, "execution_id": "exec_2f"}
    assert grade(passed, partial_reward=False).verifier_execution_id == "exec_1f"
    assert grade(crashed, partial_reward=False).verifier_execution_id == "exec_2f"
    assert grade(passed | {"execution_id": 7}, partial_reward=False).verifier_execution_id is None
    long = grade(passed | {"execution_id": "x" * 300}, partial_reward=False)
    assert long.verifier_execution_id == "x" * 200
