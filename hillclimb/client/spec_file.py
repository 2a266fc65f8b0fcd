"""Reads a spec from YAML or JSON and applies `--set key=value` to it."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

import yaml

from hillclimb.client.errors import SpecFileError
from hillclimb.spec.rules.documents import load_yaml
from hillclimb.spec.rules.dotted_keys import set_key

STANDARD_INPUT = "-"
MAX_SPEC_BYTES = 1_000_000
"""The largest body that the service accepts."""


def read_spec(path: Path, assignments: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the spec as JSON values; the service validates it.

    Raises:
        SpecFileError: the file cannot be read, is not a mapping, or contains values without JSON;
            or an assignment is malformed.
    """
    try:
        spec = load_yaml(_text_of(path))
    except OSError as error:
        raise SpecFileError(f"cannot read {path}: {error.strerror}") from error
    except RecursionError as error:
        raise SpecFileError(f"{path} is nested too deeply") from error
    except SpecFileError as error:
        raise SpecFileError(f"{path}: {error}") from error
    except (yaml.YAMLError, ValueError) as error:
        # PyYAML calls any text a "<unicode string>"; the file is named already.
        why = str(error).replace('  in "<unicode string>", ', "  in ")
        raise SpecFileError(f"{path} is neither YAML nor JSON: {why}") from error
    if spec is None:
        raise SpecFileError(f"{path} is empty: `hillclimb init FILE` writes a spec to begin from")
    if not isinstance(spec, dict):
        raise SpecFileError(
            f"{path} is not a mapping of sections, such as `data: {{env_keys: [booking]}}`"
        )
    _locate_demonstrations(spec, path.parent)
    try:
        return with_assignments(spec, assignments)
    except RecursionError as error:
        raise SpecFileError(f"{path} is nested too deeply") from error


def _locate_demonstrations(spec: dict[str, Any], folder: Path) -> None:
    """Turn a relative path of demonstrations into an absolute one, from the folder of the spec."""
    section = spec.get("sft")
    file = section.get("demonstrations") if isinstance(section, dict) else None
    if isinstance(section, dict) and isinstance(file, str) and file and "://" not in file:
        section["demonstrations"] = str((folder / file).absolute())


def _text_of(path: Path) -> str:
    """Return the text of a file, without a byte order mark; `-` is standard input.

    Raises:
        OSError: the file cannot be read.
        SpecFileError: it is larger than the service accepts, or not UTF-8.
    """
    if str(path) == STANDARD_INPUT:
        content = sys.stdin.buffer.read(MAX_SPEC_BYTES + 1)
    else:
        with path.open("rb") as file:
            content = file.read(MAX_SPEC_BYTES + 1)
    if len(content) > MAX_SPEC_BYTES:
        raise SpecFileError(f"it has more than {MAX_SPEC_BYTES:,} bytes, which no spec needs")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise SpecFileError(f"line {line} is not UTF-8: save the file in that encoding") from error


def with_assignments(spec: dict[str, Any], assignments: tuple[str, ...]) -> dict[str, Any]:
    """Set single keys of the spec, in place, and return it.

    Raises:
        SpecFileError: an assignment is malformed, or the spec contains values without JSON.
    """
    for assignment in assignments:
        assign(spec, assignment)
    _count_what_was_assigned(spec, [each.partition("=")[0].strip() for each in assignments])
    _refuse_non_json(spec, "")
    return spec


def _count_what_was_assigned(spec: dict[str, Any], keys: list[str]) -> None:
    """Let assigned steps count where the file or preset has epochs, which would replace them."""
    schedule = spec.get("schedule")
    names_steps_alone = "schedule.total_steps" in keys and "schedule.epochs" not in keys
    if names_steps_alone and isinstance(schedule, dict) and "epochs" in schedule:
        schedule["epochs"] = None


def _refuse_non_json(value: Any, pointer: str) -> None:
    """Raise SpecFileError for YAML values without JSON: dates, `.nan`, keys like `on`."""
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise SpecFileError(f"{pointer or '/'}: the key {key!r} is not text: quote it")
            _refuse_non_json_scalar(key, f"{pointer}/{key!r}")
            _refuse_non_json(inner, f"{pointer}/{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            _refuse_non_json(inner, f"{pointer}/{index}")
    else:
        _refuse_non_json_scalar(value, pointer)


def _refuse_non_json_scalar(value: Any, pointer: str) -> None:
    if isinstance(value, str):
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise SpecFileError(f"{pointer}: {value!r} is not valid Unicode")
    elif isinstance(value, float) and not math.isfinite(value):
        raise SpecFileError(f"{pointer}: {value} is not a finite number")
    elif value is not None and not isinstance(value, bool | int | float):
        kind = type(value).__name__
        raise SpecFileError(
            f"{pointer}: a {kind} is not allowed in a spec; quote it if you mean text"
        )


def assign(spec: dict[str, Any], assignment: str) -> None:
    """Set one dotted key: `optimizer.lr=1e-4`, `data.env_keys=[booking]`; the value is YAML.

    A part with a dot is quoted: `environment.overrides."forum.v2".max_turns=4`.

    Raises:
        SpecFileError: the `=` is missing, or a parent of the key is not a mapping.
    """
    dotted, value = _read(assignment)
    try:
        set_key(spec, dotted, value)
    except ValueError as error:
        raise SpecFileError(f"--set {dotted}: {error}") from error


def read_assignments(assignments: tuple[str, ...]) -> dict[str, Any]:
    """Return the values by dotted key, which the service sets.

    Raises:
        SpecFileError: an assignment is malformed, or names a value without JSON.
    """
    changes = dict(map(_read, assignments))
    _refuse_non_json(changes, "")
    return changes


def _read(assignment: str) -> tuple[str, Any]:
    dotted, separator, text = assignment.partition("=")
    if not separator or not dotted.strip():
        raise SpecFileError(f"--set requires key=value, not {assignment!r}")
    return dotted.strip(), parse_value(text)


def parse_value(text: str) -> Any:
    """Return a YAML value; unlike YAML 1.1, `1e-4` is a number."""
    try:
        return float(text) if _looks_scientific(text) else load_yaml(text)
    except (yaml.YAMLError, ValueError) as error:
        raise SpecFileError(f"cannot read the value {text!r}: {error}") from error


def _looks_scientific(text: str) -> bool:
    mantissa, separator, exponent = text.strip().lower().partition("e")
    digits = mantissa.lstrip("+-").replace(".", "", 1)
    return bool(separator) and digits.isdigit() and exponent.lstrip("+-").isdigit()
