"""What the spec says about the loss reaches it, and whole runs go through with it."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

from hillclimb.protocol.events import StepCompleted
from tests.trainer.fixtures.short_run import UNEVALUATED, ShortRun
from trainer.jobs.train.checkpoints import find_latest

QUICK = {
    "eval": UNEVALUATED,
    "schedule": {"total_steps": 2, "train_batch_size": 4, "mini_batch_size": 2},
}
ONE_STEP = {"schedule": {**QUICK["schedule"], "total_steps": 1}}
GSPO = {
    "policy_loss_type": "gspo",
    "loss_reduction": "sequence_mean",
    "eps_clip_low": 4e-4,
    "eps_clip_high": 4e-4,
}
TIS = {"off_policy_correction": {"tis_ratio_type": "token"}}
MASK = {"off_policy_correction": {"sequence_mask_metric": "geometric"}}


async def steps(path: Path, algorithm: dict[str, Any], **sections: Any) -> list[dict[str, float]]:
    """Metrics of every step of a short run."""
    run = ShortRun(path, algorithm=algorithm, **(QUICK | sections))
    await run.train()
    return [event.metrics for event in run.events(StepCompleted)]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    """The run with every setting at its default."""
    return asyncio.run(steps(tmp_path_factory.mktemp("base"), {}))


@pytest.mark.parametrize(
    ("algorithm", "names"),
    [
        ({"use_kl_loss": True}, ("policy/policy_kl", "loss/avg_kl", "loss/avg_kl_max")),
        (TIS, ("policy/tis_weight_mean", "policy/tis_token_clip_high_ratio")),
        (MASK, ("policy/geo_sequence_mask_masked_ratio",)),
        (GSPO, ()),
        ({"policy_loss_type": "cispo"}, ()),
        ({"policy_loss_type": "dual_clip", "clip_ratio_c": 1.01}, ("policy/dual_clip_ratio",)),
        ({"loss_reduction": "seq_mean_token_sum_norm"}, ()),
    ],
    ids=["kl", "tis", "mask", "gspo", "cispo", "dual_clip", "dr_grpo"],
)
async def test_a_whole_run_with_each_part_of_the_loss(
    tmp_path: Path,
    base: list[dict[str, float]],
    algorithm: dict[str, Any],
    names: tuple[str, ...],
) -> None:
    found = await steps(tmp_path, algorithm)
    assert len(found) == 2
    for metrics in found:
        assert all(math.isfinite(value) for value in metrics.values())
        assert set(names) <= metrics.keys()
        assert "loss/avg_raw_advantages" in metrics
    assert not set(names) & base[0].keys()
    # The first rollouts are the same; what is learned from them is not, or not for long.
    assert found[0]["loss/avg_final_rewards"] == base[0]["loss/avg_final_rewards"]
    learned = ("policy/final_loss", "policy/ppo_clip_ratio", "policy/grad_norm")
    assert any(a[name] != b[name] for a, b in zip(found, base, strict=True) for name in learned)


async def test_the_length_limit_of_rollouts_is_what_dr_grpo_divides_by(tmp_path: Path) -> None:
    algorithm = {"loss_reduction": "seq_mean_token_sum_norm"}
    lengths = {"n_samples_per_prompt": 4, "max_input_length": 1500, "max_generate_length": 16}
    loose = {"optimizer": {"lr": 0.01, "max_grad_norm": 1e6}}
    short, long = [
        await steps(
            tmp_path / str(limit),
            algorithm,
            rollout=lengths | {"max_sequence_length": limit},
            **loose,
            **ONE_STEP,
        )
        for limit in (1520, 1600)
    ]
    ratio = short[0]["policy/grad_norm"] / long[0]["policy/grad_norm"]
    assert ratio == pytest.approx(1600 / 1520, rel=0.02)


@pytest.mark.invariant("a resumed run keeps the reference policy of its start")
async def test_a_run_that_goes_on_keeps_the_reference_of_its_start(tmp_path: Path) -> None:
    algorithm = {"use_kl_loss": True, "kl_loss_coef": 0.1}
    schedule = {**QUICK["schedule"], "total_steps": 3}
    sections = {"algorithm": algorithm, "eval": QUICK["eval"], "schedule": schedule}
    whole = ShortRun(tmp_path / "whole", **sections)
    await whole.train()
    half = ShortRun(tmp_path / "half", run_id=whole.run_id, **sections)
    half.spec = half.spec.model_copy(
        update={"schedule": half.spec.schedule.model_copy(update={"total_steps": 1})}
    )
    await half.train()
    half.spec = whole.spec
    await half.train(2, resume_from=find_latest(half.store, half.run_id))
    expected = [event.metrics for event in whole.events(StepCompleted)][1:]
    found = [event.metrics for event in half.events(StepCompleted, 2)]
    for name in ("loss/avg_kl", "loss/avg_kl_max", "policy/policy_kl", "policy/final_loss"):
        assert [each[name] for each in found] == [each[name] for each in expected]
    assert found[0]["loss/avg_kl"] > 0.0


async def test_rollouts_that_a_limit_cut_off_are_kept_out_and_counted(
    tmp_path: Path, base: list[dict[str, float]]
) -> None:
    kept, filtered = (
        base[0],
        (await steps(tmp_path, {"apply_overlong_filtering": True}, **ONE_STEP))[0],
    )
    assert kept["rollouts/truncated_overlong"] > 0.0
    assert filtered["rollouts/truncated_overlong"] == kept["rollouts/truncated_overlong"]
    gone = filtered["loss/num_overlong_filtered"]
    assert gone == kept["policy/num_sequences"] - filtered["policy/num_sequences"] > 0.0


async def test_step_wise_learns_the_same_from_more_sequences(
    tmp_path: Path, base: list[dict[str, float]]
) -> None:
    first, second = base[0], (await steps(tmp_path, {"step_wise": True}, **ONE_STEP))[0]
    assert second["policy/num_sequences"] > first["policy/num_sequences"]
    assert second["policy/num_updates"] == first["policy/num_updates"]
    assert second["policy/num_action_tokens"] == first["policy/num_action_tokens"]
    assert second["policy/grad_norm"] == pytest.approx(first["policy/grad_norm"], rel=1e-3)
    assert second["policy/final_loss"] == pytest.approx(first["policy/final_loss"], abs=1e-5)
