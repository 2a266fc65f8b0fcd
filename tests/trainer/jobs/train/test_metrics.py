from itertools import groupby

import pytest

from hillclimb.protocol.outcomes import OutcomeRow, OutcomeStatus, StopReason
from trainer.jobs.train.metrics import Metrics, eval_metrics
from trainer.jobs.train.metrics import rollout_metrics as metrics_of_groups


def row(task: str, sample: int, score: float | None, *, env: str = "booking") -> OutcomeRow:
    return OutcomeRow(
        rollout_id=f"{env}/{task}/{sample}",
        split="train",
        decoding="train",
        task_key=task,
        env_key=env,
        template="t",
        held_out_template=task == "h",
        sample_index=sample,
        status=OutcomeStatus.GRADED if score is not None else OutcomeStatus.INFRA_ERROR,
        score=score,
        reason=None if score is not None else "tool_transport",
        stop_reason=StopReason.DONE if score is not None else StopReason.INFRA_ERROR,
        num_turns=2,
        num_tool_calls=4,
        num_tool_errors=1,
        num_repeated_calls=2,
        num_tokens=10 if score else 30,
        num_infra_retries=0 if score is not None else 2,
        duration_s=0.1,
        trajectory="x",
        trajectory_line=0,
    )


def rollout_metrics(rows: list[OutcomeRow], *, n: int, pass_threshold: float) -> Metrics:
    """The metrics of a step that drew every task once."""
    groups = [list(group) for _, group in groupby(rows, key=lambda each: each.task_key)]
    return metrics_of_groups(groups, n=n, pass_threshold=pass_threshold)


def test_a_step_reports_rewards_signal_and_lengths() -> None:
    rows = [row("a", 0, 1.0), row("a", 1, 0.0), row("b", 0, 0.0), row("b", 1, 0.0)]
    metrics = rollout_metrics(rows, n=2, pass_threshold=1.0)
    assert metrics["reward/avg_raw_reward"] == 0.25
    assert metrics["reward/avg_pass_at_1"] == 0.25
    assert metrics["reward/avg_pass_at_2"] == 0.5
    assert metrics["reward/booking/variance_per_prompt"] == 0.125
    assert metrics["reward/booking/signal_ratio"] == 0.5
    assert metrics["reward/num_zero_variance_filtered"] == 1.0
    assert metrics["generate/avg_num_tokens"] == 25.0
    assert metrics["generate/avg_tokens_non_zero_rewards"] == 10.0
    assert metrics["environment/booking/tool_error_rate"] == 0.25
    assert metrics["environment/booking/repeated_call_rate"] == 0.5
    turns = [metrics[f"environment/booking/{name}_turns"] for name in ("min", "avg", "max")]
    assert turns == [2.0, 2.0, 2.0]
    assert metrics["environment/booking/avg_tool_errors"] == 1.0
    assert metrics["environment/booking/tool_calls_per_turn"] == 2.0


def test_a_missing_grade_is_in_no_average_and_has_a_rate_of_its_own() -> None:
    rows = [row("a", 0, 1.0), row("a", 1, None), row("b", 0, 1.0), row("b", 1, 1.0)]
    metrics = rollout_metrics(rows, n=2, pass_threshold=1.0)
    assert metrics["reward/avg_raw_reward"] == 1.0
    assert metrics["reward/avg_pass_at_2"] == 1.0
    assert metrics["environment/infra_error_rate"] == 0.25
    assert metrics["environment/num_infra_retries"] == 2.0


def test_what_has_no_value_is_left_out() -> None:
    metrics = rollout_metrics([row("a", 0, None), row("a", 1, None)], n=2, pass_threshold=1.0)
    assert "reward/avg_pass_at_2" not in metrics
    assert "reward/avg_raw_reward" not in metrics
    for name in ("reward", "reward/booking"):
        assert f"{name}/signal_ratio" not in metrics
        assert f"{name}/variance_per_prompt" not in metrics
        assert metrics[f"{name}/num_zero_variance_filtered"] == 0.0


def test_without_a_call_there_is_no_share_of_calls() -> None:
    rows = [row("a", 0, 1.0).model_copy(update={"num_tool_calls": 0, "num_tool_errors": 0})]
    for metrics in (
        rollout_metrics(rows, n=1, pass_threshold=1.0),
        eval_metrics(rows, n=1, pass_threshold=1.0),
    ):
        assert not [
            name
            for name in metrics
            if name.endswith(("error_rate", "call_rate")) and "infra" not in name
        ]


def test_a_task_drawn_twice_is_two_groups_and_one_task() -> None:
    failed, passed = ([row("a", i, score) for i in range(2)] for score in (0.0, 1.0))
    mixed = [row("b", 0, 0.0), row("b", 1, 1.0)]
    metrics = metrics_of_groups([failed, passed, mixed], n=2, pass_threshold=1.0)
    for name in ("reward", "reward/booking"):
        assert metrics[f"{name}/num_zero_variance_filtered"] == 2.0
        assert metrics[f"{name}/signal_ratio"] == pytest.approx(1 / 3)
        assert metrics[f"{name}/variance_per_prompt"] == pytest.approx(0.25 / 3)
    # Over its four rollouts task a passes half of the time, and five of six pairs pass once.
    assert metrics["reward/avg_pass_at_1"] == 0.5
    assert metrics["reward/avg_pass_at_2"] == pytest.approx((5 / 6 + 1.0) / 2)


def test_an_evaluation_reports_environments_all_and_kinds_of_templates() -> None:
    rows = [row("a", 0, 1.0), row("h", 0, 0.0), row("c", 0, None), row("d", 0, 1.0, env="github")]
    metrics = eval_metrics(rows, n=1, pass_threshold=1.0)
    assert metrics["eval/booking/pass_at_1"] == 0.5
    assert metrics["eval/github/pass_at_1"] == 1.0
    assert metrics["eval/all/pass_at_1"] == pytest.approx(2 / 3)
    assert metrics["eval/seen_templates/pass_at_1"] == 1.0
    assert metrics["eval/held_out_templates/pass_at_1"] == 0.0
    assert metrics["eval/all/coverage"] == 0.75


def test_mean_positive_reward_leaves_the_failed_ones_out() -> None:
    rows = [row("a", 0, 0.5), row("a", 1, 0.0), row("b", 0, 1.0, env="github"), row("b", 1, None)]
    metrics = rollout_metrics(rows, n=2, pass_threshold=1.0)
    assert metrics["reward/mean_positive_reward"] == 0.75
    assert metrics["reward/booking/mean_positive_reward"] == 0.5
    assert "reward/mean_positive_reward" not in rollout_metrics(
        [row("a", 0, 0.0)], n=1, pass_threshold=1.0
    )
    metrics = eval_metrics(rows, n=2, pass_threshold=1.0)
    assert metrics["eval/all/mean_positive_reward"] == 0.75
    assert metrics["eval/github/mean_positive_reward"] == 1.0


def test_environments_that_never_started_and_time_that_ran_out_are_counted() -> None:
    never = {"reason": "env_unavailable", "num_turns": 0}
    rows = [
        row("a", 0, None).model_copy(update=never),
        row("a", 1, None).model_copy(update={"reason": "env_unavailable"}),
        row("b", 0, None).model_copy(update={"reason": "env_deadline"}),
        row("b", 1, 0.0, env="github").model_copy(
            update={"stop_reason": StopReason.POLICY_DEADLINE}
        ),
    ]
    metrics = rollout_metrics(rows, n=2, pass_threshold=1.0)
    assert metrics["environment/booking/env_init_failed"] == 1.0
    assert metrics["environment/booking/env_init_failures"] == 1.0
    assert metrics["environment/github/env_init_failures"] == 0.0
    assert metrics["environment/booking/trajectory_timeouts"] == 1.0
    assert metrics["environment/github/trajectory_timeouts"] == 1.0
    assert metrics["environment/total_episodes"] == 4.0
    assert metrics["environment/total_env_init_failed"] == 1.0
    assert metrics["generate/env_init_failures"] == 1.0
    assert metrics["generate/trajectory_timeouts"] == 2.0
    evaluation = eval_metrics(rows, n=2, pass_threshold=1.0)
    assert evaluation["eval/all/environment/total_env_init_failed"] == 1.0
    assert evaluation["eval/all/generate/trajectory_timeouts"] == 2.0


def test_generation_reports_tokens_per_turn_and_how_long_rollouts_took() -> None:
    rows = [
        row("a", i, 1.0).model_copy(update={"duration_s": float(i + 1), "num_turns": 1 + i % 2})
        for i in range(10)
    ]
    metrics = rollout_metrics(rows, n=10, pass_threshold=1.0)
    assert metrics["generate/tokens_per_turn"] == 100 / 15
    assert metrics["generate/trajectory_time_mean"] == 5.5
    assert metrics["generate/trajectory_time_p90"] == 9.0
    assert metrics["generate/trajectory_time_max"] == 10.0
    assert eval_metrics(rows, n=10, pass_threshold=1.0)["eval/all/generate/avg_num_tokens"] == 10.0
