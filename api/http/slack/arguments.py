"""Reads the words of a command: names, runs, and `key=value` changes."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import yaml
from sqlalchemy import select
from sqlalchemy.orm import Session

from api.http.slack.call import InputRejected
from api.tables import Run

QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‘": "'", "’": "'", "\u00a0": " "})
"""Slack's clients replace straight quotes and spaces while a person types."""
MAX_WORDS, MAX_VALUE = 64, 2000
MAX_EXCERPT = 60
"""Characters of a word that a reply repeats."""
LAST = "@last"
MIN_PREFIX = 6
"""Characters of an id after `run_`, below which a prefix is not claim for one."""
NUM_RECENT = 200


def split_words(text: str) -> list[str]:
    """Return the words of a command, in which quotes keep spaces together."""
    try:
        words = shlex.split(text.translate(QUOTES).replace("\x00", ""))
    except ValueError as error:
        raise InputRejected("A quote is open: close it, or leave it out.") from error
    if len(words) > MAX_WORDS:
        raise InputRejected(f"That is more than {MAX_WORDS} words: submit such a spec by the CLI.")
    return words


def split_changes(words: Iterable[str]) -> tuple[list[str], dict[str, Any]]:
    """Return the plain words, and the values of `key=value` words, which are YAML."""
    plain: list[str] = []
    changes: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            plain.append(word)
        elif not key:
            raise InputRejected(
                f"{excerpt(word)} has no key: write KEY=VALUE, such as optimizer.lr=1e-4."
            )
        else:
            changes[key] = read_value(key, value)
    return plain, changes


def read_value(key: str, text: str) -> Any:  # noqa: ANN401 - any JSON
    """Return a value as JSON; raises InputRejected for one that has no JSON."""
    if len(text) > MAX_VALUE:
        raise InputRejected(f"The value of {excerpt(key)} is longer than {MAX_VALUE} characters.")
    try:
        value = yaml.safe_load(text)
        # YAML 1.1 reads 1e-4 as text.
        value = float(value) if isinstance(value, str) and _is_number(value) else value
        json.dumps(value, allow_nan=False)
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as error:
        raise InputRejected(
            f"The value of {excerpt(key)} cannot be read: write a number, a word, or a list such as"
            " [booking, github]."
        ) from error
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return text.lower().lstrip("+-") not in ("nan", "inf", "infinity")


def find_run(session: Session, project_id: str, name: str) -> Run:
    """Return the run of the project that a person means: by id, its beginning, name, or `@last`.

    Of several runs with the name it is the newest. Raises InputRejected with similar names.
    """
    mine = select(Run).where(Run.project_id == project_id).order_by(Run.created_at.desc(), Run.id)
    if name == LAST:
        matches: Sequence[Run] = session.scalars(mine.limit(1)).all()
    else:
        matches = session.scalars(mine.where(Run.id == name)).all()
        matches = matches or session.scalars(mine.where(Run.name == name).limit(1)).all()
        matches = matches or _by_prefix(session, project_id, name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise InputRejected(f"Several runs begin with {excerpt(name)}: write more of the id.")
    raise InputRejected(_no_run(session, project_id, name))


def _by_prefix(session: Session, project_id: str, name: str) -> Sequence[Run]:
    if len(name.removeprefix("run_")) < MIN_PREFIX:
        return ()
    prefix = name if name.startswith("run_") else f"run_{name}"
    begins = Run.id.startswith(prefix, autoescape=True)
    query = select(Run).where(Run.project_id == project_id, begins)
    return session.scalars(query.order_by(Run.id).limit(2)).all()


def _no_run(session: Session, project_id: str, name: str) -> str:
    query = select(Run.name).where(Run.project_id == project_id).order_by(Run.created_at.desc())
    names = list(dict.fromkeys(session.scalars(query.limit(NUM_RECENT))))
    if not names:
        return "This project has no run yet: `/hillclimb run PRESET` starts the first."
    close = get_close_matches(name, names, n=3) or names[:3]
    return (
        f"There is no run {excerpt(name)}. Did you mean {', '.join(close)}? `@last` is the newest."
    )


def only_run(words: Sequence[str], usage: str) -> str:
    """Return the one run that a command names, by default the newest."""
    if len(words) > 1:
        name = excerpt(" ".join(words))
        raise InputRejected(f'One run is enough: {usage}. A name with spaces is quoted: "{name}".')
    return words[0] if words else LAST


def excerpt(word: str) -> str:
    """Return a word as a reply may repeat it: short, and without invisible characters."""
    visible = "".join(character for character in word if character.isprintable())
    return visible if len(visible) <= MAX_EXCERPT else visible[:MAX_EXCERPT] + "…"


def closest(word: str, choices: Iterable[str]) -> str:
    """Return a suggestion for a misspelt word, or nothing."""
    close = get_close_matches(word, list(choices), n=1, cutoff=0.5)
    return f" Did you mean {close[0]}?" if close else ""
