"""Reasons why settings of SkyRL have no place in a run spec, by the beginnings of their keys."""

from __future__ import annotations

from collections.abc import Mapping

from hillclimb.spec.rules.old_names import HYDRA_SECTIONS

REASONS: Mapping[str, str] = {
    "trainer.placement.": "GPUs are divided by placement.learner_ranks and"
    " engine.data_parallel_size, and nobody shares one",
    "trainer.strategy": "the learner shards its weights in one way of its own",
    "trainer.ckpt_path": "the service stores checkpoints in its own bucket",
    "trainer.export_path": "every checkpoint has its weights as a Hugging Face directory",
    "trainer.hf_save_interval": "every checkpoint has its weights as a Hugging Face directory",
    "trainer.resume_": "an interrupted run resumes from its newest checkpoint by itself",
    "trainer.micro_": "learner.max_micro_tokens bounds a micro-batch by its tokens",
    "trainer.eval_batch_size": "an evaluation takes all eval tasks at once;"
    " environment.max_concurrent_rollouts bounds what runs together",
    "trainer.update_epochs_per_batch": "every batch is learned from once",
    "trainer.max_prompt_length": "rollout.max_input_length bounds the whole conversation: set it",
    "trainer.dump_data_batch": "trajectories are always stored (hillclimb trajectories)",
    "trainer.dump_eval_results": "trajectories are always stored",
    "trainer.flash_attn": "the trainer chooses its kernels",
    "trainer.use_sample_packing": "sequences are always packed",
    "trainer.ref.": "the reference of the KL term is the starting policy, kept by the learner",
    "trainer.critic": "GRPO has no critic",
    "trainer.policy.": "the learner's settings are in optimizer and learner (docs/spec.md)",
    "trainer.algorithm.max_seq_len": "the constant of seq_mean_token_sum_norm is"
    " rollout.max_sequence_length: set it",
    "trainer.algorithm.advantage_batch_normalize": "advantages are normalised within their group",
    "trainer.algorithm.zero_variance_filter_tol": "groups score alike where their scores are equal",
    "trainer.algorithm.": "the losses' settings are in algorithm (docs/spec.md)",
    "generator.sampling_params.stop": "a turn ends where the chat template ends it",
    "generator.sampling_params.top_p": "training samples from the engine's whole distribution, so"
    " that log-probs are those of the policy",
    "generator.eval_sampling_params.": "an evaluation's sampling is in eval.decodings",
    "generator.run_engines_locally": "the trainer starts its engines",
    "generator.async_engine": "engines are always asynchronous; schedule.max_staleness_steps lets"
    " rollouts run ahead",
    "generator.batched": "engines always batch what arrives",
    "generator.use_conversation_multi_turn": "rollouts are conversations of several turns",
    "generator.enforce_eager": "the trainer chooses how the engine runs",
    "generator.": "engine and rollout have the sampler's settings (docs/spec.md)",
    "environment.skyrl_gym.": "tasks come from a registered dataset, data.dataset",
    "data.": "tasks and their split are a registered dataset, data.dataset",
    "trainer.": "no key of a spec has this meaning",
}
SET_ELSEWHERE = (
    "environment.env_class",
    "generator.backend",
    "generator.weight_sync_backend",
    "trainer.logger",
    "trainer.algorithm.zero_variance_filter",
    "generator.eval_n_samples_per_prompt",
    "generator.eval_sampling_params.temperature",
    "generator.eval_sampling_params.top_p",
)


def reason_without_place(key: str) -> str | None:
    """Return why a key has no place; None for one that another function sets."""
    if key in SET_ELSEWHERE:
        return None
    longest = max((each for each in REASONS if key.startswith(each)), key=len, default=None)
    if longest is not None:
        return f"no place: {REASONS[longest]}"
    return "no place" if key.startswith(HYDRA_SECTIONS) else None
