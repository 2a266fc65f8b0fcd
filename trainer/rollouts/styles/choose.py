"""Choice of the prompt style that a spec names."""

from __future__ import annotations

from datetime import datetime

from hillclimb.spec.environment.prompt import PromptSpec
from trainer.rollouts.chat.prompts import PROMPT_VERSION
from trainer.rollouts.styles.base import PromptStyle
from trainer.rollouts.styles.own import OWN_STYLE, SHARED_FIRST_STYLE
from trainer.rollouts.styles.skyrl.rules import SkyrlRules
from trainer.rollouts.styles.skyrl.wording import SkyrlWording


def choose_style(spec: PromptSpec) -> PromptStyle:
    """Return the style of a spec; the machine's date is read here, once per attempt and process."""
    if spec.style == "skyrl":
        today = datetime.now().astimezone().date()
        return PromptStyle(wording=SkyrlWording(today=today), rules=SkyrlRules())
    return OWN_STYLE if spec.version == PROMPT_VERSION else SHARED_FIRST_STYLE
