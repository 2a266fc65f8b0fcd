"""Choice of the prompt style that a spec names, and of the chat format that belongs to it."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from pathlib import Path

from hillclimb.spec.environment.prompt import PromptSpec
from trainer.rollouts.chat.chat import CallForm, Chat, load_chat
from trainer.rollouts.chat.prompts import PROMPT_VERSION
from trainer.rollouts.styles.base import PromptStyle
from trainer.rollouts.styles.native.chat import NativeChat
from trainer.rollouts.styles.native.rules import NativeRules
from trainer.rollouts.styles.native.wording import NativeWording
from trainer.rollouts.styles.own import OWN_STYLE, SHARED_FIRST_STYLE
from trainer.rollouts.styles.skyrl.rules import SkyrlRules
from trainer.rollouts.styles.skyrl.wording import SkyrlWording


def choose_chat(spec: PromptSpec, model_dir: Path, vocab_size: int | None) -> Chat:
    """Load the chat format of a spec and a model with `vocab_size` embeddings (None: any number).

    Raises:
        ModelUnavailable: there is no tokenizer.
        SpecError: the model cannot chat in this format, or its tokenizer does not belong to it.
    """
    made = NativeChat if spec.tool_format == "native" else Chat
    return load_chat(model_dir, vocab_size, partial(made.from_directory, thinking=spec.thinking))


def choose_style(spec: PromptSpec, form: CallForm = "tagged") -> PromptStyle:
    """Return the style of a spec for a model that writes calls in a form.

    The machine's date is read here, once per attempt and process.
    """
    if spec.style == "skyrl":
        today = datetime.now().astimezone().date()
        return PromptStyle(wording=SkyrlWording(today=today), rules=SkyrlRules())
    shared_first = spec.version != PROMPT_VERSION
    if spec.tool_format == "native":
        wording = NativeWording(shared_first=shared_first)
        return PromptStyle(wording=wording, rules=NativeRules(form))
    return SHARED_FIRST_STYLE if shared_first else OWN_STYLE
