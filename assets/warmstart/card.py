"""What is known about a warm-started model, measured when it was made."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from transformers import Qwen3ForCausalLM

from assets.warmstart.text.habits import APPS_TAUGHT, HABITS
from assets.warmstart.tokenizer import tokenizer_hash
from assets.warmstart.training.playing import Played, play
from hillclimb.minifleet.tasks import minifleet_tasks
from trainer.rollouts.chat.chat import Chat
from trainer.rollouts.chat.prompts import PROMPT_VERSION

EVAL_SEED = 4242
HELD_OUT_SHARE = 0.25
_DECODINGS: Mapping[str, float] = {"sampled": 1.0, "greedy": 0.0}

Rates = dict[str, dict[str, dict[str, float | int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """How a model was made: what the card says besides measurements."""

    seed: int
    command: str
    weights_sha256: str
    copy_accuracy: float
    train_seconds: float


def measure(model: Qwen3ForCausalLM, chat: Chat, *, n_per_env: int, seed: int) -> Rates:
    """Pass rates by decoding and environment on tasks of the eval split, one rollout a task.

    `passed` counts episodes that passed; `passed_without_habit` those that would have passed had
    only the planted habit been taken out; both also for seen and held-out templates alone.
    """
    tasks = minifleet_tasks(APPS_TAUGHT, "eval", n_per_env, EVAL_SEED, HELD_OUT_SHARE)
    rates: Rates = {}
    for decoding, temperature in _DECODINGS.items():
        games = asyncio.run(play(model, chat, tasks, temperature=temperature, seed=seed))
        rates[decoding] = {
            key: _summary([game for game in games if game.task.env_key == key])
            for key in APPS_TAUGHT
        }
        rates[decoding]["all"] = _summary(games)
    return rates


def write_card(directory: Path, model: Qwen3ForCausalLM, origin: Origin, rates: Rates) -> None:
    """Write `CARD.json` beside the weights."""
    config = model.config
    card = {
        "architecture": {
            "class": "Qwen3ForCausalLM",
            "hidden_size": config.hidden_size,
            "num_hidden_layers": config.num_hidden_layers,
            "num_attention_heads": config.num_attention_heads,
            "num_key_value_heads": config.num_key_value_heads,
            "head_dim": config.head_dim,
            "intermediate_size": config.intermediate_size,
            "vocab_size": config.vocab_size,
            "context_length": config.max_position_embeddings,
            "tied_embeddings": config.tie_word_embeddings,
        },
        "num_parameters": sum(parameter.numel() for parameter in model.parameters()),
        "stored_dtype": "bfloat16",
        "seed": origin.seed,
        "command": origin.command,
        "train_seconds": round(origin.train_seconds),
        "weights_sha256": origin.weights_sha256,
        "tokenizer_sha256": tokenizer_hash(directory),
        "prompt_version": PROMPT_VERSION,
        "habits": {key: {"flaw": h.flaw.name, "share": h.share} for key, h in HABITS.items()},
        "habits_in_words": {
            key: f"{habit.flaw.value} ({habit.share:.0%} of demonstrations)"
            for key, habit in HABITS.items()
            if habit.share
        },
        "measured": {
            "copy_accuracy": origin.copy_accuracy,
            "tasks": f"eval split, seed {EVAL_SEED}, {HELD_OUT_SHARE:.0%} held-out templates, "
            "one rollout per task",
            "pass_rates": rates,
        },
    }
    (directory / "CARD.json").write_text(json.dumps(card, indent=2) + "\n")


def table(rates: Rates) -> str:
    """The pass rates as text for people."""
    lines = [f"{'':22}{'n':>5}{'passed':>8}{'no habit':>9}{'seen':>7}{'held out':>9}"]
    for decoding, by_env in rates.items():
        for key, row in by_env.items():
            lines.append(
                f"{decoding + ' ' + key:22}{row['n']:>5}{row['passed']:>8.3f}"
                f"{row['passed_without_habit']:>9.3f}{row['seen_without_habit']:>7.3f}"
                f"{row['held_out_without_habit']:>9.3f}"
            )
    return "\n".join(lines)


def _summary(games: Sequence[Played]) -> dict[str, float | int]:
    seen = [game for game in games if not game.task.held_out_template]
    held_out = [game for game in games if game.task.held_out_template]
    return {
        "n": len(games),
        "passed": _share(game.passed for game in games),
        "passed_without_habit": _share(game.passed_without_habit for game in games),
        "seen_passed": _share(game.passed for game in seen),
        "seen_without_habit": _share(game.passed_without_habit for game in seen),
        "held_out_passed": _share(game.passed for game in held_out),
        "held_out_without_habit": _share(game.passed_without_habit for game in held_out),
    }


def _share(flags: Iterable[bool]) -> float:
    counted = list(flags)
    return round(sum(counted) / max(len(counted), 1), 4)
