"""A row of a dump is the rollout that it stands for, and says nothing that the row does not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hillclimb.protocol.outcomes import OutcomeStatus, StopReason
from hillclimb.protocol.payloads.results.rollouts import StoredTrajectory
from hillclimb.stats.trajectories.patterns.registry import PATTERNS_VERSION
from hillclimb.stats.trajectories.skyrl.export import exported_line, source_line
from hillclimb.stats.trajectories.skyrl.layout import DumpPlace, place_of
from hillclimb.stats.trajectories.skyrl.metrics import Reward, eval_metrics, largest_group
from hillclimb.stats.trajectories.skyrl.rollouts import DumpedRollout, outcome_row, stored_line
from hillclimb.stats.trajectories.skyrl.rows import DumpRejected, format_row, parse_row
from hillclimb.stats.trajectories.skyrl.sums import mean, pairwise_sum, variance
from tests.fixtures.skyrl import STEPS, files, row

END = "<|im_end|>"
NUMPY = {
    1: (0.1, 0.1, 0.0),
    7: (2.8, 0.39999999999999997, 0.039999999999999994),
    8: (3.6, 0.45, 0.0525),
    9: (4.5, 0.5, 0.06666666666666668),
    127: (812.8000000000001, 6.4, 13.440000000000001),
    128: (825.6, 6.45, 13.6525),
    129: (838.4999999999999, 6.499999999999999, 13.866666666666669),
    1000: (50050.0, 50.05, 833.3325),
}
"""Sum, mean and variance of 0.1, 0.2, … by numpy 2, by the number of values."""


def rollout(**values: object) -> DumpedRollout:
    line = row(**values)
    return DumpedRollout(
        row=parse_row(line, place="x"),
        line=line.decode().rstrip("\n"),
        step=80,
        decoding="greedy",
        sample_index=2,
    )


def outcome(**values: object) -> Any:
    return outcome_row(rollout(**values), file="f", line=7, threshold=1.0)


def extras(**values: object) -> dict[str, object]:
    return {"env_extras": {"task_key": "t1", "data_source": "github", **values}}


def test_the_outcome_has_its_place_and_its_score() -> None:
    made = outcome(data_source="a/b", score=[0.25, 0.25])
    assert made.rollout_id == "1/80/eval/greedy/a_b/t1/2"
    assert (made.env_key, made.task_key, made.sample_index) == ("a_b", "t1", 2)
    assert (made.split, made.decoding, made.score) == ("eval", "greedy", 0.5)
    assert (made.trajectory, made.trajectory_line) == ("f", 7)
    assert (made.status, made.duration_s) == (OutcomeStatus.GRADED, 0.0)


@pytest.mark.parametrize(("score", "value"), [(1.0 + 5e-10, 1.0), (-5e-10, 0.0), (1, 1.0), (0, 0)])
def test_a_sum_is_rounded_into_the_range_of_grades(score: float, value: float) -> None:
    assert outcome(score=score).score == value


@pytest.mark.parametrize("score", [1.0 + 2e-9, -2e-9, [1.0, 1.0], float("nan"), float("inf")])
def test_a_sum_outside_of_the_range_is_refused(score: object) -> None:
    with pytest.raises(DumpRejected):
        rollout(score=score)


@pytest.mark.parametrize(
    ("reason", "response", "turns", "stop"),
    [
        ("stop", f"<done>{END}", 50, StopReason.DONE),
        ("stop", f"bye{END}", 50, StopReason.ENV_ENDED),
        ("stop", f"bye{END}", 1, StopReason.MAX_TURNS),
        ("stop", f"bye{END}", None, StopReason.ENV_ENDED),
        (None, f"bye{END}", 50, StopReason.ENV_ENDED),
        ("length", f"bye{END}", 50, StopReason.MAX_INPUT_LENGTH),
        ("length", "by", 50, StopReason.MAX_GENERATE_LENGTH),
    ],
)
def test_the_stop_reason_is_the_one_that_says_most(
    reason: str | None, response: str, turns: int | None, stop: StopReason
) -> None:
    made = outcome(stop_reason=reason, output_response=response, **extras(max_turns=turns))
    assert made.stop_reason is stop


@pytest.mark.parametrize(
    ("reason", "status", "stop"),
    [
        ("env_init_failed", OutcomeStatus.INFRA_ERROR, StopReason.INFRA_ERROR),
        ("timeout", OutcomeStatus.UNGRADED, StopReason.POLICY_DEADLINE),
    ],
)
def test_a_rollout_that_was_lost_has_no_grade_and_nobody_looked_for_patterns(
    reason: str, status: OutcomeStatus, stop: StopReason
) -> None:
    made = outcome(stop_reason=reason, score=[0.0], output_response=END)
    assert (made.status, made.score, made.stop_reason) == (status, None, stop)
    assert made.reason
    assert (made.num_turns, made.patterns) == (0, None)


def test_calls_errors_repeats_and_patterns_are_counted() -> None:
    call = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    answer = f'{END}\n<|im_start|>user\n<tool_response>\n{{"error": "issue not found"}}\n'
    answer += f"</tool_response>{END}\n<|im_start|>assistant\n"
    made = outcome(output_response=(call + answer) * 2 + call + END, score=[0.0] * 100)
    assert (made.num_turns, made.num_tool_calls, made.num_repeated_calls) == (3, 3, 2)
    assert (made.num_tool_errors, made.tool_errors) == (2, {"not_found": 2})
    assert "not_found" in made.patterns
    assert made.patterns_version == PATTERNS_VERSION
    passed = outcome(output_response=f"{call}{answer}<done>{END}", score=[1.0])
    assert passed.num_tool_errors == 1


def test_tokens_are_the_share_of_the_models_characters() -> None:
    response = "a" * 60 + "<|im_end|>" + "<|im_start|>user\n" + "b" * 13
    assert outcome(output_response=response, score=[0.0] * 200).num_tokens == 120
    thinking = "<think>" + "t" * 43 + "</think>" + "a" * 42
    made = outcome(output_response=thinking, score=[0.0] * 100)
    assert (made.num_tokens, made.num_thinking_tokens) == (100, 43)
    assert outcome(score=0.0).num_tokens == 0
    assert outcome(output_response="", score=[0.0]).num_tokens == 0


def test_what_a_task_says_of_itself_is_taken_where_it_is_there() -> None:
    known = outcome(**extras(difficulty=3, task_modality="computer_use"))
    assert (known.difficulty, known.modality) == (3, "computer_use")
    for value in (0, 4, "2", None):
        assert outcome(**extras(difficulty=value)).difficulty is None
    assert outcome(**extras(task_modality="x")).modality == "tool_use"


@pytest.mark.parametrize(
    ("variables", "stored"),
    [
        ({"A": "1", "B": 2}, {"A": "1"}),
        ('{"A": "1"}', {"A": "1"}),
        ("{", {}),
        ("[]", {}),
        (3, {}),
    ],
)
def test_variables_may_be_text(variables: object, stored: dict[str, str]) -> None:
    line = json.loads(stored_line(rollout(**extras(env_variables=variables))))
    assert line["task"]["env_variables"] == stored


def test_a_stored_line_is_a_trajectory_with_its_row() -> None:
    made = rollout(output_response=f"hm{END}")
    content = json.loads(stored_line(made))
    stored = StoredTrajectory.model_validate(content)
    assert (stored.task.key, stored.task.prompt) == ("t1", "Do it.")
    assert [turn.response for turn in stored.turns] == ["hm"]
    assert source_line(content) == made.line + "\n"
    assert source_line({}) is None


def own(stop: str = "done", **values: object) -> StoredTrajectory:
    turn = {"tool_arguments": None, "is_error": False, "call_index": 0, "tool_name": None}
    body: dict[str, Any] = {
        "task": {"key": "k", "env_key": "github", "prompt": "P", "env_variables": {}},
        "stop_reason": stop,
        "outcome": {"status": "graded", "score": 0.5},
        "turns": [
            turn | {"response": "one", "observation": "1"},
            turn | {"response": "", "observation": "2", "call_index": 1},
            turn | {"response": "two", "observation": "3"},
        ],
        "prompt_length": 3,
        "token_ids": [0] * 8,
        "action_mask": [],
        "logprobs": [],
        "weight_versions": [],
    }
    return StoredTrajectory.model_validate(body | values)


def test_a_rollout_of_ours_has_the_text_without_its_last_answer() -> None:
    made = json.loads(exported_line(own(), score=0.5, max_turns=9))
    assert made["input_prompt"] == f"<|im_start|>user\nP{END}\n<|im_start|>assistant\n"
    blocks = "<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>"
    answers = f"<|im_start|>user\n{blocks}{END}\n<|im_start|>assistant\n"
    assert made["output_response"] == f"one{END}\n{answers}two{END}"
    assert made["score"] == [0.0] * 4 + [0.5]
    assert (made["stop_reason"], made["env_extras"]["max_turns"]) == ("stop", 9)


@pytest.mark.parametrize(
    ("stop", "reason", "end"),
    [
        ("max_generate_length", "length", "two"),
        ("max_input_length", "length", f"two{END}"),
        ("policy_deadline", "timeout", f"two{END}"),
        ("max_turns", "stop", f"two{END}"),
    ],
)
def test_the_end_is_in_skyrls_words(stop: str, reason: str, end: str) -> None:
    made = json.loads(exported_line(own(stop), score=0.0, max_turns=9))
    assert made["stop_reason"] == reason
    assert made["output_response"].endswith(f"assistant\n{end}")


def test_a_rollout_without_turns_has_one_token() -> None:
    made = json.loads(exported_line(own(turns=[], token_ids=[]), score=1.0, max_turns=9))
    assert (made["output_response"], made["score"]) == ("", [1.0])


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("global_step_0/github.jsonl", DumpPlace(step=0, name="github")),
        ("global_step_80_evals/a.b.jsonl", DumpPlace(step=80, name="a.b")),
        ("global_step_01/github.jsonl", None),
        ("global_step_1234567890/github.jsonl", None),
        ("global_step_1/.jsonl", None),
        ("global_step_1/../x.jsonl", None),
        ("x/global_step_1/github.jsonl", None),
        ("global_step_1/a\\b.jsonl", None),
        ("global_step_1/github.json", None),
        ("github.jsonl", None),
    ],
)
def test_names_are_those_of_a_dump(path: str, place: DumpPlace | None) -> None:
    assert place_of(path) == place
    assert place is None or place.path == path.replace("_evals", "")


@pytest.mark.parametrize("path", [name for name in files() if "aggregated" not in name])
def test_a_row_is_written_as_skyrl_wrote_it(path: str) -> None:
    lines = files()[path].splitlines(keepends=True)
    assert [format_row(parse_row(line, place=path)).encode() for line in lines] == lines


@pytest.mark.parametrize("step", STEPS)
def test_metrics_are_skyrls_to_the_last_digit(step: int) -> None:
    rewards = [
        Reward(env_key=each.data_source, task_key=each.task_key, value=each.reward)
        for path, content in sorted(files().items())
        if path.startswith(f"global_step_{step}/") and "aggregated" not in path
        for each in (parse_row(line, place=path) for line in content.splitlines())
    ]
    assert largest_group(rewards) == 3
    aggregated = files()[f"global_step_{step}/aggregated_results.jsonl"]
    assert eval_metrics(rewards, num_samples=3) == json.loads(aggregated)


def test_metrics_of_no_rollout_are_zero() -> None:
    assert eval_metrics([], num_samples=3) == {
        "eval/all/pass_at_3": 0.0,
        "eval/all/variance_per_prompt": 0.0,
        "eval/all/mean_positive_reward": 0.0,
    }
    assert largest_group([]) == 0


@pytest.mark.parametrize("count", NUMPY)
def test_sums_are_rounded_as_numpys(count: int) -> None:
    values = [index / 10 for index in range(1, count + 1)]
    assert (pairwise_sum(values), mean(values), variance(values)) == NUMPY[count]
