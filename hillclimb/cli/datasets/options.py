"""Converts the arguments of `hillclimb datasets` into options of a request."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from hillclimb.blobs.archive.gzip_file import GZIP_MAGIC
from hillclimb.client.errors import HillclimbError
from hillclimb.client.spec_file import assign
from hillclimb.datasets.format.rows import DatasetError
from hillclimb.datasets.split.published import read_published

UNITS = {"d": "days", "h": "hours", "m": "minutes"}
READ_PUBLISHED = click.option(
    "--published",
    type=click.Path(path_type=Path, dir_okay=False),
    help="JSON file with the split of each key (train or eval), or a split file from `pull`.",
)
SET_BY = {
    "policy": "split.policy",
    "eval_ratio": "split.eval_ratio",
    "held_out_env": "split.held_out_envs",
    "envs": "filters.env_keys",
    "modality": "filters.modality",
    "difficulty": "filters.difficulty",
    "max_tasks": "filters.max_tasks",
    "parent": "parent",
}
"""Option set by each flag of `create`."""
FLAGS = {name: f"--{name.replace('_', '-')}" for name in SET_BY} | {"envs": "--env"}


class BadDataset(HillclimbError):
    """The file or the options cannot be read."""


def parse_version(text: str) -> tuple[str, str]:
    """Return name and number of `NAME@3`; the number of `NAME` is `latest`."""
    name, at, number = text.partition("@")
    if not name or (at and not number.isdecimal()):
        raise click.BadParameter(f"{text!r}: write NAME@3, or NAME for the newest version")
    return name, number or "latest"


def parse_end(text: str) -> str:
    """Return the time of `3d`, `12h`, `30m` or a date, as ISO text with a time zone."""
    if match := re.fullmatch(r"(\d{1,5})([dhm])", text.strip()):
        return (datetime.now(UTC) + timedelta(**{UNITS[match[2]]: int(match[1])})).isoformat()
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise click.BadParameter(f"{text!r}: write 3d, 12h, 30m or 2026-03-01") from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


def tool_tokens(pairs: tuple[str, ...]) -> dict[str, int]:
    """Return `ENV=N` pairs as token counts by environment."""
    tokens = {}
    for pair in pairs:
        env, equals, number = pair.partition("=")
        if not (env and equals and number.isdecimal()):
            raise click.BadParameter(f"{pair!r}: write ENV=N, such as github=26000")
        tokens[env] = int(number)
    return tokens


def build_options(
    source: str, *, assignments: tuple[str, ...] = (), **choices: Any
) -> tuple[Path | None, dict[str, Any]]:
    """Return the file to upload, if any, and the options of a new version.

    Raises:
        BadDataset: the file, or that of a published split, does not exist or cannot be read.
        click.UsageError: two flags contradict each other.
    """
    _refuse_contradictions(choices, assignments)
    options: dict[str, Any] = {"filters": _filters(choices), "split": _split(choices)}
    if choices.get("parent"):
        options["parent"] = choices["parent"]
    for assignment in assignments:
        assign(options, assignment)
    file = Path(source)
    if "://" in source or (not file.exists() and re.fullmatch(r"[^/@]+@\d+", source)):
        return None, options | {"source": source}
    if not file.is_file():
        raise BadDataset(f"there is no file {source}: name one, s3://BUCKET/PATH, or NAME@N")
    if not file.stat().st_size:
        raise BadDataset(f"{source} is empty: it must contain tasks")
    return file, options


def _refuse_contradictions(choices: dict[str, Any], assignments: tuple[str, ...]) -> None:
    """Refuse flags that leave other flags without effect.

    Raises:
        click.UsageError: two flags exclude each other.
    """
    flags = [name for name in SET_BY if choices.get(name) not in (None, ())]
    if choices.get("published"):
        unused = [FLAGS[name] for name in flags if SET_BY[name].startswith("split.")]
        if unused:
            raise click.UsageError(
                f"--published reads the split from a file, so {unused[0]} has no effect: leave one"
                " of them out"
            )
    assigned = {assignment.partition("=")[0].strip() for assignment in assignments}
    twice = [name for name in flags if SET_BY[name] in assigned]
    if twice:
        raise click.UsageError(
            f"{FLAGS[twice[0]]} and --set {SET_BY[twice[0]]} set the same option: use one of them"
        )
    sections = {FLAGS[name]: SET_BY[name].partition(".")[0] for name in flags}
    if choices.get("published"):
        sections["--published"] = "split"
    for flag, section in sections.items():
        if section in assigned:
            raise click.UsageError(
                f"{flag} has no effect with --set {section}, which sets all of it: leave one of"
                " them out"
            )


def _filters(choices: dict[str, Any]) -> dict[str, Any]:
    values = {
        "env_keys": list(choices.get("envs") or ()),
        "difficulty": list(choices.get("difficulty") or ()),
        "modality": choices.get("modality"),
        "max_tasks": choices.get("max_tasks"),
    }
    return {name: value for name, value in values.items() if value}


def _split(choices: dict[str, Any]) -> dict[str, Any]:
    if choices.get("published"):
        return _published(choices["published"])
    split: dict[str, Any] = {"policy": choices.get("policy") or "rank"}
    if choices.get("eval_ratio") is not None:
        split["eval_ratio"] = choices["eval_ratio"]
    if choices.get("held_out_env"):
        modality = choices.get("modality") or "tool_use"
        split["held_out_envs"] = {modality: list(choices["held_out_env"])}
    return split


def _published(path: Path) -> dict[str, Any]:
    try:
        return read_published(_document(path.read_bytes())).model_dump(mode="json")
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise BadDataset(f"{path} is damaged or truncated: {error}") from error
    except OSError as error:
        raise BadDataset(f"cannot read {path}: {error.strerror}") from error
    except DatasetError as error:
        raise BadDataset(f"{path}: {error}") from error
    except ValueError as error:
        raise BadDataset(f"{path} is neither JSON nor JSON lines: {error}") from error


def _document(content: bytes) -> Any:
    """Return the JSON of a file, plain or gzip; JSON lines as a list of their rows."""
    text = gzip.decompress(content) if content.startswith(GZIP_MAGIC) else content
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2:
            raise
        try:
            return [json.loads(line) for line in lines]
        except json.JSONDecodeError:
            raise error from None
    is_row = isinstance(document, dict) and document.keys() >= {"key", "split", "fingerprint"}
    return [document] if is_row else document
