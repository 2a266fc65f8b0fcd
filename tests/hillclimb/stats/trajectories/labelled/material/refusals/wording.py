"""A wording of a refusal, and the answer made of it."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template

from pydantic import JsonValue

from tests.hillclimb.stats.trajectories.labelled.envs.answers import ScriptedAnswer


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """A platform's words; `$tool`, `$argument`, `$value` and `$noun` are filled in."""

    text: str
    shows_error: bool = True
    """The form alone says that it is an error, so that the platform need not mark it."""


def formed(text: str) -> Wording:
    """Return a wording whose form says that it is an error."""
    return Wording(text=text)


def body(**fields: JsonValue) -> Wording:
    """Return a wording that is an error's JSON body."""
    return Wording(text=json.dumps(fields))


def prose(text: str) -> Wording:
    """Return a wording that is an error only where the platform marks it."""
    return Wording(text=text, shows_error=False)


def answers(
    wordings: Sequence[Wording], rng: random.Random, details: Mapping[str, str], *, may_mark: bool
) -> list[ScriptedAnswer]:
    """Return every wording as an answer, in random order."""
    usable = [each for each in wordings if may_mark or each.shows_error]
    return [
        ScriptedAnswer(
            text=Template(each.text).safe_substitute(details),
            is_error=may_mark and (not each.shows_error or rng.random() < 0.5),
        )
        for each in rng.sample(usable, len(usable))
    ]
