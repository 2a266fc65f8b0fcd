"""TRL's GRPOTrainer on our main job: same tiny model, tasks, token caps, end rule and reward.

    python -m benchmarks.trainer.trl_peer --config continuous --steps 12 --out peer.json

Runs in an environment of its own (`benchmarks/trainer/README.md`), because TRL is no part of the
product. Held-out pass@1 is measured by our evaluator, under our engine, and does not count in
TRL's time. Times are wall-clock and CPU seconds of TRL's own steps.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import torch
import yaml
from datasets import Dataset
from transformers import AutoTokenizer, Qwen3ForCausalLM, TrainerCallback, TrainerState
from trl import GRPOConfig, GRPOTrainer

from benchmarks.trainer.held_out import HeldOut
from benchmarks.trainer.minifleet_for_trl import (
    CHAT_TEMPLATE,
    RESPONSE_TEMPLATE,
    environment_class,
    reward,
    row_of,
)
from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.spec.run import RunSpec
from trainer.inputs.model.sources import resolve_source
from trainer.inputs.tasks.sampler import TaskSampler

ROOT = Path(__file__).resolve().parents[2]

CONFIGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "continuous": {"use_transformers_continuous_batching": True},
    "bf16": {"bf16": True},
    "hotter": {"learning_rate": 5e-4},
    "one update": {"per_device_train_batch_size": 160, "steps_per_generation": 1},
    "small micro-batches": {"per_device_train_batch_size": 20, "gradient_accumulation_steps": 4},
}
"""What was tuned; everything else is that of the demo's spec."""


@dataclass(slots=True)
class Meter(TrainerCallback):  # type: ignore[misc]
    """TRL's own seconds, and the held-out curve beside them."""

    held_out: HeldOut
    updates_per_step: int
    every: int
    curve: list[dict[str, float]] = field(default_factory=list)
    _wall: float = 0.0
    _cpu: float = 0.0
    _began: tuple[float, float] = (0.0, 0.0)

    def on_train_begin(
        self, args: object, state: object, control: object, **kwargs: object
    ) -> None:
        """Measure the warm start."""
        self._measure(0, kwargs["model"])
        self._go_on()

    def on_step_end(
        self, args: object, state: TrainerState, control: object, **kwargs: object
    ) -> None:
        """Stop the clock, measure now and then, go on."""
        step, rest = divmod(state.global_step, self.updates_per_step)
        if rest:
            return
        self._pause()
        if step % self.every == 0:
            self._measure(step, kwargs["model"])
        else:
            print(f"step {step}: {self._wall:.0f} s, {self._cpu:.0f} cpu-s", flush=True)
        self._go_on()

    def _go_on(self) -> None:
        self._began = time.perf_counter(), time.process_time()

    def _pause(self) -> None:
        self._wall += time.perf_counter() - self._began[0]
        self._cpu += time.process_time() - self._began[1]

    def _measure(self, step: int, model: object) -> None:
        assert isinstance(model, Qwen3ForCausalLM)
        rates = asyncio.run(self.held_out.pass_rates(model))
        self.curve.append({"step": step, "wall_s": self._wall, "cpu_s": self._cpu, **rates})
        print(json.dumps(self.curve[-1]), flush=True)


def train(options: argparse.Namespace) -> list[dict[str, float]]:
    """Train with one configuration and return its curve."""
    document = yaml.safe_load((ROOT / "examples" / "demo.yaml").read_text())
    document["schedule"]["seed"] = options.seed
    decodings = document["eval"]["decodings"]
    document["eval"]["decodings"] = [each for each in decodings if each["name"] == "sampled"]
    del document["eval"]["interval_decodings"]
    spec = RunSpec.model_validate(document)
    source = resolve_source(spec.model.source)
    tokenizer = AutoTokenizer.from_pretrained(source)
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.response_template = RESPONSE_TEMPLATE
    data = spec.data
    tasks = minifleet_tasks(data.env_keys, "train", data.train_tasks_per_env, data.seed)
    sampler = TaskSampler(tasks, spec.schedule.train_batch_size, data.seed)
    rows = [row_of(task) for _ in range(options.steps) for task in sampler.next_step()]
    by_env = {key: {t.key: t for t in tasks if t.env_key == key} for key in data.env_keys}
    chosen = CONFIGS[options.config]
    meter = Meter(
        HeldOut(spec, source, tasks_per_env=options.eval_tasks_per_env),
        updates_per_step=chosen.get("steps_per_generation", 2),
        every=options.eval_every,
    )
    trainer = GRPOTrainer(
        model=Qwen3ForCausalLM.from_pretrained(source, dtype=torch.float32),
        reward_funcs=[reward],
        args=_config(spec, options, chosen),
        train_dataset=Dataset.from_list(rows),
        processing_class=tokenizer,
        environment_factory={k: environment_class(k, by_env[k]) for k in data.env_keys},
        callbacks=[meter],
    )
    trainer.train()
    return meter.curve


def _config(spec: RunSpec, options: argparse.Namespace, chosen: dict[str, Any]) -> GRPOConfig:
    rollouts = spec.schedule.train_batch_size * spec.rollout.n_samples_per_prompt
    settings: dict[str, Any] = {
        "output_dir": str(options.out.parent / "trl"),
        "use_cpu": True,
        "bf16": False,
        "per_device_train_batch_size": rollouts // 2,
        "steps_per_generation": 2,
        "num_generations": spec.rollout.n_samples_per_prompt,
        "max_completion_length": spec.rollout.max_sequence_length - 300,
        "generation_kwargs": {"max_new_tokens": spec.rollout.max_generate_length},
        "max_tool_calling_iterations": spec.environment.max_turns - 1,
        "temperature": spec.rollout.temperature,
        "learning_rate": spec.optimizer.lr,
        "lr_scheduler_type": "constant",
        "adam_beta1": spec.optimizer.betas[0],
        "adam_beta2": spec.optimizer.betas[1],
        "max_grad_norm": spec.optimizer.max_grad_norm,
        "epsilon": spec.algorithm.eps_clip_low,
        "epsilon_high": spec.algorithm.eps_clip_high,
        "beta": 0.0,
        "loss_type": "dapo",
        "scale_rewards": "group",
        "shuffle_dataset": False,
        "num_train_epochs": 1,
        "save_strategy": "no",
        "report_to": "none",
        "logging_strategy": "no",
        "disable_tqdm": True,
        "seed": spec.schedule.seed,
    }
    if "gradient_accumulation_steps" in chosen:
        settings["steps_per_generation"] = 2 * chosen["gradient_accumulation_steps"]
    return GRPOConfig(**settings | chosen)


def main() -> None:
    """Run one configuration and write its curve."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--config", choices=sorted(CONFIGS), default="plain")
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--eval-every", type=int, default=5)
    parser.add_argument("--eval-tasks-per-env", type=int, default=60)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    document = {"config": options.config, "threads": options.threads, "curve": train(options)}
    options.out.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
