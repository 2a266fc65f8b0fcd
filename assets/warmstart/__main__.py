"""Make a tiny warm-started model: `python -m assets.warmstart --seed N --out DIR`."""

from __future__ import annotations

import argparse
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import torch
from transformers import Qwen3ForCausalLM

from assets.warmstart.card import Origin, measure, table, write_card
from assets.warmstart.text.copying import CopyDocuments, copy_accuracy, word_pieces
from assets.warmstart.text.corpus import corpus
from assets.warmstart.text.demonstrations import Demonstrations, Recording, train_recordings
from assets.warmstart.text.documents import Document
from assets.warmstart.text.habits import APPS_TAUGHT
from assets.warmstart.tokenizer import END_OF_TEXT, build_tokenizer
from assets.warmstart.training.fitting import Stage, fit
from assets.warmstart.training.model import build_model, load_model, save_model, tiny_config
from trainer.rollouts.chat.chat import Chat

TOKENIZER_SEED = 0
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
EVEN = dict.fromkeys(APPS_TAUGHT, 1.0)
EASY_FIRST = {**EVEN, "outlook": 1.8}
"""The last stages show the easy environment more often, which saturates it."""
COPIES_KEPT = 2
"""Copy documents in every batch of the later stages: what is not practised is forgotten."""


def main() -> None:
    """Make or take over the tokenizer, train four stages, save, measure, write the card."""
    options = _options()
    torch.set_num_threads(1)
    options.out.mkdir(parents=True, exist_ok=True)
    recordings = train_recordings(APPS_TAUGHT, n_per_env=options.tasks_per_env, seed=options.seed)
    if options.tokenizer_from:
        # Making a shipped model again takes its own tokenizer: nothing to copy then.
        for name in TOKENIZER_FILES if options.tokenizer_from != options.out else ():
            shutil.copyfile(options.tokenizer_from / name, options.out / name)
    else:
        demonstrations = Demonstrations(recordings, EVEN, seed=TOKENIZER_SEED)
        texts = corpus(demonstrations, num_episodes=4000, num_values=8000, seed=TOKENIZER_SEED)
        build_tokenizer(texts).save_pretrained(options.out)
    _train(options, recordings)


def _train(options: argparse.Namespace, recordings: list[Recording]) -> None:
    start = time.perf_counter()
    chat = Chat.from_directory(options.out)
    copies = CopyDocuments(chat, seed=options.seed)
    if options.model_from:
        model = load_model(options.model_from)
    else:
        model = _new_model(chat, options.seed)
        _teach(model, chat, copies, options, recordings)
    _polish(model, chat, copies, options, recordings)
    accuracy = copy_accuracy(model, CopyDocuments(chat, seed=options.seed + 9).take(200))
    say(f"copy accuracy {accuracy:.3f} of whole documents")
    origin = Origin(
        seed=options.seed,
        command=_command(options),
        weights_sha256=save_model(model, options.out),
        copy_accuracy=accuracy,
        train_seconds=time.perf_counter() - start,
    )
    rates = measure(model, chat, n_per_env=options.eval_tasks_per_env, seed=options.seed)
    say(table(rates))
    write_card(options.out, model, origin, rates)


def _new_model(chat: Chat, seed: int) -> Qwen3ForCausalLM:
    config = tiny_config(
        vocab_size=chat.vocab_size,
        end_of_turn_id=chat.end_of_turn_id,
        pad_id=chat.token_id(END_OF_TEXT),
    )
    model = build_model(config, seed=seed)
    say(f"{sum(p.numel() for p in model.parameters())} parameters, seed {seed}")
    return model


def _teach(
    model: Qwen3ForCausalLM,
    chat: Chat,
    copies: CopyDocuments,
    options: argparse.Namespace,
    recordings: list[Recording],
) -> None:
    """Stages one to three: copying, demonstrations, demonstrations with the easy app more often."""
    fit(model, Stage(name="copy", num_steps=options.copy_steps, batch_size=32), copies.take, say)
    even = Demonstrations(recordings, EVEN, seed=options.seed + 1)
    stage = Stage(name="demonstrations", num_steps=options.demo_steps, batch_size=18)
    fit(model, stage, _mixed(even, copies, chat), say)
    easy = Demonstrations(recordings, EASY_FIRST, seed=options.seed + 2)
    stage = Stage(
        name="easy first",
        num_steps=options.easy_steps,
        batch_size=18,
        matrix_lr=0.01,
        averaging=0.98,
    )
    fit(model, stage, _mixed(easy, copies, chat), say)


def _polish(
    model: Qwen3ForCausalLM,
    chat: Chat,
    copies: CopyDocuments,
    options: argparse.Namespace,
    recordings: list[Recording],
) -> None:
    """Last stage: names put together from rare tokens, and no drift of the tokens left out."""
    pieces = word_pieces(chat)
    shown = Demonstrations(recordings, EASY_FIRST, seed=options.seed + 3, name_pieces=pieces)
    stage = Stage(
        name="polish",
        num_steps=options.polish_steps,
        batch_size=20,
        matrix_lr=0.01,
        other_lr=3e-3,
        embedding_eps=3e-5,
        flat_share=0.3,
        averaging=0.98,
    )
    fit(model, stage, _mixed(shown, copies, chat), say)


def _mixed(
    shown: Demonstrations, copies: CopyDocuments, chat: Chat
) -> Callable[[int], list[Document]]:
    return lambda count: shown.take(count - COPIES_KEPT, chat) + copies.take(COPIES_KEPT)


def say(line: str) -> None:
    """Print at once, also into a log file."""
    print(line, flush=True)


def _command(options: argparse.Namespace) -> str:
    command = f"python -m assets.warmstart --seed {options.seed} --out assets/{options.out.name}"
    if options.tokenizer_from:
        command += f" --tokenizer-from assets/{options.tokenizer_from.name}"
    return (
        f"{command} --copy-steps {options.copy_steps} --demo-steps {options.demo_steps}"
        f" --easy-steps {options.easy_steps} --polish-steps {options.polish_steps}"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m assets.warmstart", description=__doc__)
    parser.add_argument("--seed", type=int, required=True, help="of every random draw")
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    parser.add_argument("--tokenizer-from", type=Path, help="model directory; else a new one")
    parser.add_argument("--copy-steps", type=int, default=250)
    parser.add_argument("--demo-steps", type=int, default=700)
    parser.add_argument("--easy-steps", type=int, default=300)
    parser.add_argument("--polish-steps", type=int, default=300)
    parser.add_argument("--model-from", type=Path, help="only polish the model of this directory")
    parser.add_argument("--tasks-per-env", type=int, default=1200, help="train tasks recorded")
    parser.add_argument("--eval-tasks-per-env", type=int, default=60)
    return parser.parse_args()


if __name__ == "__main__":
    main()
