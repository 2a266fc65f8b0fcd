"""`python -m trainer.envs.openenv.check`: right and wrong about servers, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.trainer.envs.openenv.servers import Served
from trainer.envs.openenv.check.__main__ import main
from trainer.envs.openenv.check.arguments import schema_problem

TOKEN = "Bearer countdown"
"""As `countdown.py` asks for it."""


def judged(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, str]]:
    code = main([*words, "--json", "--episodes", "3", "--deadline", "20"])
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert answer["ok"] is (code == 0)
    return code, {each["what"]: each["mark"] for each in answer["findings"]}


def test_a_good_server_is_found_good(search: Served, capsys: pytest.CaptureFixture[str]) -> None:
    code, found = judged(capsys, search.url, "--reset", '{"split": "train"}')
    assert code == 0
    named = ("answers", "deterministic", "prompt", "schema", "concurrent", "mistakes", "speed")
    assert {found[name] for name in named} == {"ok"}


def test_a_reward_outside_of_its_range_is_wrong(
    search: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    reset = ("--reset", '{"split": "train"}')
    code, found = judged(capsys, search.url, *reset, "--reward-range", "5", "6")
    assert (code, found["reward"]) == (1, "wrong")


def test_a_server_that_wants_a_key_is_not_taken_for_another_kind(
    countdown: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([countdown.url, "--json"]) == 1
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert "answers 401" in finding["sentence"]
    assert "asks for a key" in finding["sentence"]


def test_a_key_opens_the_server_and_is_not_printed(
    countdown: Served, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    header = ("--header-from", "Authorization:RUN_SECRET_CHECK_0")
    monkeypatch.setenv("RUN_SECRET_CHECK_0", TOKEN)
    assert main([countdown.url, *header, "--json", "--episodes", "1"]) in (0, 1)
    printed = capsys.readouterr()
    (first, *rest) = json.loads(printed.out)["findings"]
    assert (first["what"], first["mark"]) == ("answers", "ok")
    assert {each["what"] for each in rest} >= {"deterministic", "reward"}
    assert TOKEN not in printed.out + printed.err
    monkeypatch.setenv("RUN_SECRET_CHECK_0", "wrong-secret")
    assert main([countdown.url, *header, "--json"]) == 1
    printed = capsys.readouterr()
    (finding,) = json.loads(printed.out)["findings"]
    assert "refuses what the check sends as Authorization" in finding["sentence"]
    assert "wrong-secret" not in printed.out + printed.err


def test_a_path_without_a_server_is_wrong_and_silence_is_code_5(
    search: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    code, found = judged(capsys, f"{search.url}/nothing")
    assert (code, found) == (1, {"protocol": "wrong"})
    code, found = judged(capsys, "http://127.0.0.1:9")
    assert (code, found) == (5, {"answers": "wrong"})


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["ftp://x"], "cannot be used"),
        (["http://127.0.0.1:9/ws"], "ends in /ws"),
        (["http://example.com", "--header-from", "A:RUN_SECRET_X"], "over https only"),
        (["http://127.0.0.1:9", "--header-from", "A"], "is not NAME:VARIABLE"),
        (["http://127.0.0.1:9", "--header-from", "A:RUN_SECRET_NOT_SET"], "is not set"),
        (["http://127.0.0.1:9", "--reset", "[1]"], "--reset is no JSON object"),
        (["http://127.0.0.1:9", "--tasks", "/nothing"], "cannot read /nothing"),
        (["http://127.0.0.1:9", "--reward-range", "1", "0"], "reward_range is [1, 0]"),
    ],
)
def test_bad_input_is_a_sentence(
    words: list[str], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    assert part in capsys.readouterr().err


def test_a_line_that_is_no_task_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text('{"metadata": {"reset": {}}}\n{"metadata": {"reset": 3}}\n')
    assert main(["http://127.0.0.1:9", "--tasks", str(file)]) == 2
    assert "line 2: metadata.reset is no object" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("schema", "part"),
    [
        ({"type": "array"}, "not object"),
        ({"type": "object", "properties": {"a": 3}}, "a has no schema"),
        ({"type": "object", "properties": {"a": {"type": "int"}}}, "unknown type 'int'"),
        ({"type": "object", "required": ["b"]}, "requires b"),
    ],
)
def test_a_schema_that_does_not_parse_is_named(schema: dict[str, Any], part: str) -> None:
    problem = schema_problem(schema)
    assert problem is not None
    assert part in problem
