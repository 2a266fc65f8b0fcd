"""Metrics of a step or an evaluation, under the names of SkyRL and Fleet.

A metric that has no value (no graded rollout, fewer samples than k) is left out, never a zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, pstdev

from hillclimb.environment.errors import EnvUnavailable, RolloutDeadline
from hillclimb.protocol.outcomes import Groups, OutcomeRow, OutcomeStatus, StopReason
from hillclimb.stats.pass_rate import (
    count_tasks,
    pass_rate,
    pass_table,
    signal_ratio,
    variance_per_prompt,
)
from hillclimb.stats.reward_spread import differ

Metrics = dict[str, float]

ENV_UNAVAILABLE, ENV_DEADLINE = EnvUnavailable.code, RolloutDeadline.code


def rollout_metrics(groups: Groups, *, n: int, pass_threshold: float) -> Metrics:
    """Rewards, lengths and environment figures of one training step's rollouts.

    The signal is counted by group, pass rates by task: a step may have several groups of a task.
    """
    rows = [row for group in groups for row in group]
    metrics = _present(
        {
            f"reward/avg_pass_at_{n}": _pass_at(rows, n, pass_threshold),
            "reward/avg_pass_at_1": _pass_at(rows, 1, pass_threshold),
            "reward/avg_raw_reward": _mean_score(rows),
            "reward/mean_positive_reward": _mean_positive(rows),
        }
    )
    metrics |= _signal("reward", groups)
    for env_key, group in _by_env(rows).items():
        name = env_key.replace("/", "_")
        metrics |= _present(
            {
                f"reward/{name}/pass_at_{n}": _pass_at(group, n, pass_threshold),
                f"reward/{name}/pass_at_1": _pass_at(group, 1, pass_threshold),
                f"reward/{name}/avg_raw_reward": _mean_score(group),
                f"reward/{name}/mean_positive_reward": _mean_positive(group),
            }
        )
        own = [rows for rows in groups if rows and rows[0].env_key == env_key]
        metrics |= _signal(f"reward/{name}", own)
        metrics |= _environment(f"environment/{name}", group)
    metrics |= _environment("environment", rows) | _totals("environment", rows)
    return metrics | _generation("generate", rows)


def provider_metrics(measures: Mapping[str, Sequence[Mapping[str, float]]]) -> Metrics:
    """Return the providers' own metrics by environment, from their rollouts' measures.

    Counts (`num_...`) are added up, everything else is averaged.
    """
    metrics: Metrics = {}
    for env_key, rollouts in measures.items():
        for name in sorted({name for each in rollouts for name in each}):
            values = [each[name] for each in rollouts if name in each]
            value = sum(values) if name.startswith("num_") else fmean(values)
            metrics[f"environment/{env_key.replace('/', '_')}/provider/{name}"] = value
    return metrics


def eval_metrics(rows: Sequence[OutcomeRow], *, n: int, pass_threshold: float) -> Metrics:
    """pass@1, pass@n, mean score and coverage, per environment, over all and per template kind.

    Rollouts that never started count in the coverage alone.
    """
    metrics: Metrics = {}
    started = [row for row in rows if row.stop_reason is not StopReason.NOT_STARTED]
    for env_key, group in (*_by_env(started).items(), ("all", started)):
        name = env_key.replace("/", "_")
        metrics |= _present(
            {
                f"eval/{name}/avg_score": _mean_score(group),
                f"eval/{name}/mean_positive_reward": _mean_positive(group),
            }
        )
        metrics |= _environment(f"eval/{name}/environment", group)
    metrics |= _totals("eval/all/environment", started)
    metrics |= _generation("eval/all/generate", started)
    for k in sorted({1, n}):
        table = pass_table(rows, pass_threshold=pass_threshold, k=k)
        rates = {
            **{key.replace("/", "_"): rate for key, rate in table.by_env.items()},
            "all": table.overall,
            "seen_templates": table.seen_templates,
            "held_out_templates": table.held_out_templates,
        }
        metrics |= _present({f"eval/{key}/pass_at_{k}": rate.value for key, rate in rates.items()})
        metrics |= {
            f"eval/{key}/coverage": rate.coverage
            for key, rate in rates.items()
            if rate.num_rollouts
        }
    return metrics


def _pass_at(rows: Sequence[OutcomeRow], k: int, pass_threshold: float) -> float | None:
    return pass_rate(count_tasks(rows, pass_threshold=pass_threshold), k=k).value


def _mean_score(rows: Sequence[OutcomeRow]) -> float | None:
    scores = [row.score for row in rows if row.score is not None]
    return fmean(scores) if scores else None


def _mean_positive(rows: Sequence[OutcomeRow]) -> float | None:
    scores = [row.score for row in rows if row.score is not None and row.score > 0.0]
    return fmean(scores) if scores else None


def _signal(name: str, groups: Groups) -> Metrics:
    graded = [[row.score for row in group if row.score is not None] for group in groups]
    compared = [scores for scores in graded if len(scores) > 1]
    return _present(
        {
            f"{name}/variance_per_prompt": variance_per_prompt(compared),
            f"{name}/signal_ratio": signal_ratio(compared),
            f"{name}/num_zero_variance_filtered": float(
                sum(not differ(scores) for scores in compared)
            ),
        }
    )


def _environment(name: str, rows: Sequence[OutcomeRow]) -> Metrics:
    if not rows:
        return {}
    turns = [row.num_turns for row in rows]
    calls = sum(row.num_tool_calls for row in rows)
    errors = sum(row.num_tool_errors for row in rows)
    return {
        f"{name}/num_episodes": float(len(rows)),
        f"{name}/avg_turns": fmean(turns),
        f"{name}/min_turns": float(min(turns)),
        f"{name}/max_turns": float(max(turns)),
        f"{name}/avg_tool_calls": calls / len(rows),
        f"{name}/avg_tool_errors": errors / len(rows),
        f"{name}/tool_calls_per_turn": calls / max(sum(turns), 1),
        f"{name}/total_tool_errors": float(errors),
        f"{name}/infra_error_rate": _share(rows, OutcomeStatus.INFRA_ERROR),
        f"{name}/ungraded_rate": _share(rows, OutcomeStatus.UNGRADED),
        f"{name}/num_infra_retries": float(sum(row.num_infra_retries for row in rows)),
        f"{name}/env_init_failed": float(sum(map(_never_started, rows))),
        f"{name}/env_init_failures": float(sum(map(_never_started, rows))),
        f"{name}/trajectory_timeouts": float(sum(map(_out_of_time, rows))),
    } | _calls(name, rows)


def _calls(name: str, rows: Sequence[OutcomeRow]) -> Metrics:
    calls = sum(row.num_tool_calls for row in rows)
    if not calls:
        return {}
    return {
        f"{name}/tool_error_rate": sum(row.num_tool_errors for row in rows) / calls,
        f"{name}/repeated_call_rate": sum(row.num_repeated_calls for row in rows) / calls,
    }


def _totals(name: str, rows: Sequence[OutcomeRow]) -> Metrics:
    """The two counts that have another name in Fleet when taken over all environments."""
    return {
        f"{name}/total_episodes": float(len(rows)),
        f"{name}/total_env_init_failed": float(sum(map(_never_started, rows))),
    }


def _never_started(row: OutcomeRow) -> bool:
    return row.reason == ENV_UNAVAILABLE and row.num_turns == 0


def _out_of_time(row: OutcomeRow) -> bool:
    """True if the deadline of a turn or of the trajectory ended the rollout."""
    return row.stop_reason is StopReason.POLICY_DEADLINE or row.reason == ENV_DEADLINE


def _generation(name: str, rows: Sequence[OutcomeRow]) -> Metrics:
    if not rows:
        return {}
    tokens = [row.num_tokens for row in rows]
    seconds = sorted(row.duration_s for row in rows)
    passed = [row.num_tokens for row in rows if row.score]
    failed = [row.num_tokens for row in rows if row.score == 0.0]
    return {
        f"{name}/avg_num_tokens": fmean(tokens),
        f"{name}/min_num_tokens": float(min(tokens)),
        f"{name}/max_num_tokens": float(max(tokens)),
        f"{name}/std_num_tokens": pstdev(tokens),
        f"{name}/tokens_per_turn": sum(tokens) / max(sum(row.num_turns for row in rows), 1),
        f"{name}/trajectory_time_mean": fmean(seconds),
        f"{name}/trajectory_time_p90": seconds[math.ceil(0.9 * len(seconds)) - 1],
        f"{name}/trajectory_time_max": seconds[-1],
        f"{name}/env_init_failures": float(sum(map(_never_started, rows))),
        f"{name}/trajectory_timeouts": float(sum(map(_out_of_time, rows))),
    } | _present(
        {
            f"{name}/avg_tokens_non_zero_rewards": fmean(passed) if passed else None,
            f"{name}/avg_tokens_zero_rewards": fmean(failed) if failed else None,
        }
    )


def _share(rows: Sequence[OutcomeRow], status: OutcomeStatus) -> float:
    return sum(row.status is status for row in rows) / len(rows)


def _by_env(rows: Iterable[OutcomeRow]) -> dict[str, list[OutcomeRow]]:
    groups: dict[str, list[OutcomeRow]] = {}
    for row in rows:
        groups.setdefault(row.env_key, []).append(row)
    return groups


def _present(values: Mapping[str, float | None]) -> Metrics:
    return {name: value for name, value in values.items() if value is not None}
