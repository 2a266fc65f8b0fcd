"""Held-out pass@1 of any Qwen3 in memory, measured as a run's own evaluation measures it."""

from __future__ import annotations

from pathlib import Path

from transformers import Qwen3ForCausalLM

from hillclimb.minifleet.tasks import minifleet_tasks
from hillclimb.spec.run import RunSpec
from hillclimb.stats.pass_rate import count_tasks, pass_rate
from trainer.engines.torch.engine import TorchEngine, TorchEngineOptions
from trainer.envs.minifleet import MinifleetProvider
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.groups.collector import Collector
from trainer.rollouts.records.outcomes import outcome_rows
from trainer.rollouts.request import RolloutRequest
from trainer.rollouts.worker import RolloutParts, RolloutWorker


class HeldOut:
    """The demo's held-out tasks under its two decodings."""

    def __init__(self, spec: RunSpec, source: Path, *, tasks_per_env: int) -> None:
        self._spec = spec
        self._chat = Chat.from_directory(source)
        self._tasks = minifleet_tasks(
            spec.data.env_keys,
            "eval",
            tasks_per_env,
            spec.data.seed,
            held_out_share=spec.data.held_out_template_share,
        )

    async def pass_rates(self, model: Qwen3ForCausalLM) -> dict[str, float]:
        """pass@1 in per cent by decoding; the model is read, not changed."""
        weights = {name: tensor.detach().float() for name, tensor in model.state_dict().items()}
        weights["lm_head.weight"] = model.lm_head.weight.detach().float()
        engine = TorchEngine(model.config, weights, options=TorchEngineOptions(num_sessions=192))
        spec = self._spec
        parts = RolloutParts(
            engine=engine,
            chat=self._chat,
            provider=MinifleetProvider(env_keys=spec.data.env_keys),
            environment=spec.environment,
            rollout=spec.rollout,
            seed=spec.schedule.seed,
            attempt=1,
        )
        collector = Collector(
            RolloutWorker(parts), max_concurrent_rollouts=spec.environment.max_concurrent_rollouts
        )
        rates: dict[str, float] = {}
        for decoding in spec.eval.decodings:
            request = RolloutRequest(
                step=0,
                split="eval",
                decoding=decoding.name,
                n_samples_per_prompt=1,
                temperatures=dict.fromkeys(spec.data.env_keys, decoding.temperature),
            )
            groups = await collector.collect(self._tasks, request)
            rows = outcome_rows(
                [each for group in groups for each in group], request, trajectory_key=""
            )
            counts = count_tasks(rows, pass_threshold=spec.eval.pass_threshold)
            rates[decoding.name] = round(100.0 * (pass_rate(counts, k=1).value or 0.0), 1)
        await engine.close()
        return rates
