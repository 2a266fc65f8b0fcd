"""Metrics of SkyRL and Fleet, by their old names: one table for dashboards and for imports.

W&B gets a metric under its old name too where a run has it; an imported history gets today's name.
`{env}` stands for an environment, `{n}` for a number of samples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

EVAL = "eval/"
"""An old evaluation names no decoding; W&B has it under `eval_{decoding}/` beside this."""
PLACEHOLDER = re.compile(r"\{([a-z]+)\}")
NUMBERS = frozenset({"n"})
"""Placeholders that stand for a number; the others stand for a part of a name."""


@dataclass(frozen=True, kw_only=True)
class OldMetric:
    """A metric that dashboards of SkyRL and Fleet name."""

    old: str
    ours: str | None = None
    """Today's name; None: runs have no such figure."""
    note: str = ""
    """Why runs do not have it, or how it differs."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches what the old name stands for."""
        return _pattern(self.old)

    @cached_property
    def own_pattern(self) -> re.Pattern[str]:
        """Matches what today's name stands for."""
        assert self.ours is not None
        return _pattern(self.ours)


def _same(*names: str, note: str = "") -> tuple[OldMetric, ...]:
    return tuple(OldMetric(old=name, ours=name, note=note) for name in names)


def _lost(*names: str, why: str) -> tuple[OldMetric, ...]:
    return tuple(OldMetric(old=name, note=why) for name in names)


def _renamed(old: str, ours: str, note: str = "") -> tuple[OldMetric, ...]:
    return (OldMetric(old=old, ours=ours, note=note),)


OF_ENVIRONMENTS = (
    "avg_turns", "min_turns", "max_turns", "avg_tool_calls", "tool_calls_per_turn",
    "avg_tool_errors", "total_tool_errors", "tool_error_rate", "num_episodes", "env_init_failed",
    "env_init_failures", "trajectory_timeouts",
)  # fmt: skip
OF_GENERATION = (
    "min_num_tokens", "max_num_tokens", "avg_num_tokens", "std_num_tokens",
    "avg_tokens_non_zero_rewards", "avg_tokens_zero_rewards", "env_init_failures",
    "trajectory_timeouts",
)  # fmt: skip
KL = "with `algorithm.use_kl_loss`"
PER_ROLLOUT = "runs do not add up how long the model and the environment of each rollout took"

OLD_METRICS: tuple[OldMetric, ...] = (
    # Training (fleet-task-grpo, SkyRL).
    *_same(
        "reward/avg_pass_at_{n}", "reward/avg_raw_reward", "reward/mean_positive_reward",
        "reward/variance_per_prompt", "reward/num_zero_variance_filtered",
        "reward/{env}/pass_at_{n}", "reward/{env}/variance_per_prompt",
        "reward/{env}/signal_ratio", "reward/{env}/mean_positive_reward",
    ),
    *_same("loss/avg_final_rewards", "loss/avg_raw_advantages", "loss/avg_raw_advantages_abs"),
    *_same("loss/avg_kl", "loss/avg_kl_max", "loss/kl_loss_coef", "policy/policy_kl", note=KL),
    *_same(
        "policy/final_loss", "policy/policy_loss", "policy/ppo_clip_ratio", "policy/policy_entropy",
        "policy/response_length", "policy/policy_lr", "policy/grad_norm",
        "policy/rollout_train_logprobs_abs_diff_mean", "policy/rollout_train_logprobs_abs_diff_std",
    ),
    *_renamed("loss_metrics/clip_ratio", "policy/ppo_clip_ratio"),
    *_same(*(f"generate/{name}" for name in OF_GENERATION)),
    *_lost(
        "generate/tokens_per_turn_{stat}",
        why="runs have the mean alone, as `generate/tokens_per_turn`",
    ),
    *_lost(
        "generate/trajectory_time_{part}_{stat}",
        why="runs have the time of whole rollouts, as `generate/trajectory_time_{stat}`",
    ),
    *_same(*(f"environment/{{env}}/{name}" for name in OF_ENVIRONMENTS)),
    *_same(*(f"environment/{name}" for name in OF_ENVIRONMENTS)),
    *_same("environment/total_episodes", "environment/total_env_init_failed"),
    *_lost("hint/{name}", why="rollouts get no hints"),
    *_same("trainer/epoch", "trainer/global_step"),
    *_same("trainer/tokens_per_second_per_gpu", note="on a GPU"),
    *_same(
        "timing/step", "timing/generate", "timing/convert_to_training_input",
        "timing/fwd_logprobs_values_reward", "timing/compute_advantages_and_returns",
        "timing/policy_train", "timing/sync_weights", "timing/eval", "timing/save_checkpoints",
    ),
    *_renamed("timing/train_critic_and_policy", "timing/policy_train", "there is no critic"),
    *_same(
        "async/staleness_mean", "async/staleness_max", "async/staleness_min",
        "async/staleness_ratio", "async/staleness_violation_count", "async/keep_rate",
    ),
    # Evaluations.
    *_same(
        "eval/{env}/avg_score", "eval/{env}/pass_at_{n}", "eval/{env}/mean_positive_reward",
        note="`{env}` is `all` for all of them together",
    ),
    *_same(
        *(f"eval/all/generate/{name}" for name in OF_GENERATION),
        *(f"eval/all/environment/{name}" for name in OF_ENVIRONMENTS),
    ),
    # Training on Tinker (fleet-tinker-grpo).
    *_renamed("time/rollout", "timing/generate"),
    *_renamed("time/train", "timing/policy_train"),
    *_renamed("time/total", "timing/step"),
    *_lost(
        "time/gen_total", "time/gen_mean", "time/gen_pct", "time/step_total", "time/step_mean",
        "time/step_pct", why=PER_ROLLOUT,
    ),
    *_renamed(
        "throughput/tokens_total", "generate/num_sampled_tokens",
        "with the tokens of rollouts without a grade",
    ),
    *_lost("throughput/tokens_per_sec_gen", why=PER_ROLLOUT),
    *_lost(
        "throughput/tokens_per_sec_effective",
        why="it was over the added times of rollouts at once; `trainer/tokens_per_second` is over"
        " the time of the step",
    ),
    *_renamed("rollouts/total", "environment/total_episodes"),
    *_lost(
        "rollouts/valid", "rollouts/invalid",
        why="shares of them are `environment/infra_error_rate` and `environment/ungraded_rate`",
    ),
    *_same("rollouts/truncated_overlong"),
    *_lost(
        "advantage/mean", "advantage/std",
        why="over rollouts and normalised; `loss/avg_raw_advantages` is over tokens",
    ),
    *_renamed("rollout/{env}/turns", "environment/{env}/avg_turns"),
    *_renamed("rollout/{env}/tool_calls", "environment/{env}/avg_tool_calls"),
    *_renamed("rollout/{env}/tool_errors", "environment/{env}/avg_tool_errors"),
    *_renamed("rollout/{env}/tool_error_rate", "environment/{env}/tool_error_rate"),
    *_lost(
        "rollout/{env}/duration", "rollout/min_duration",
        why="runs have the mean and the largest over all environments",
    ),
    *_renamed("rollout/avg_duration", "generate/trajectory_time_mean"),
    *_renamed("rollout/max_duration", "generate/trajectory_time_max"),
    *_renamed("eval/num_samples", "eval/all/environment/total_episodes"),
)  # fmt: skip
RENAMED: Sequence[OldMetric] = tuple(
    each for each in OLD_METRICS if each.ours is not None and each.ours != each.old
)


def old_names(ours: str) -> Iterator[str]:
    """Yield the other names that dashboards have for a metric of today."""
    for each in RENAMED:
        if match := each.own_pattern.fullmatch(ours):
            yield each.old.format(**match.groupdict())


def present_name(old: str) -> str:
    """Return today's name of a metric; an unknown one stays as it is."""
    for each in RENAMED:
        if each.ours is not None and (match := each.pattern.fullmatch(old)):
            return each.ours.format(**match.groupdict())
    return old


def _pattern(name: str) -> re.Pattern[str]:
    *pairs, rest = PLACEHOLDER.split(name)
    regex = ""
    for text, placeholder in zip(pairs[::2], pairs[1::2], strict=True):
        content = "[0-9]+" if placeholder in NUMBERS else "[^/]+"
        regex += f"{re.escape(text)}(?P<{placeholder}>{content})"
    return re.compile(regex + re.escape(rest))
