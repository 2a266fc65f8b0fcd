"""Reads a spec from YAML or JSON and applies `--set key=value` to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hillclimb.errors import SpecFileError


def read_spec(path: Path, assignments: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the spec as plain values; validation is the service's.

    Raises:
        SpecFileError: the file cannot be read, is not a mapping, or an assignment is malformed.
    """
    try:
        spec = yaml.safe_load(path.read_text())
    except OSError as error:
        raise SpecFileError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SpecFileError(f"{path} is neither YAML nor JSON: {error}") from error
    if not isinstance(spec, dict):
        raise SpecFileError(f"{path} does not hold a mapping of sections")
    for assignment in assignments:
        assign(spec, assignment)
    return spec


def assign(spec: dict[str, Any], assignment: str) -> None:
    """Set one dotted key: `optimizer.lr=1e-4`, `data.env_keys=[booking]`; the value is YAML.

    Raises:
        SpecFileError: there is no `=`, or the path goes through something that is not a mapping.
    """
    dotted, separator, text = assignment.partition("=")
    if not separator or not dotted:
        raise SpecFileError(f"--set wants key=value, not {assignment!r}")
    *parents, last = dotted.strip().split(".")
    target = spec
    for part in parents:
        target = target.setdefault(part, {})
        if not isinstance(target, dict):
            raise SpecFileError(f"--set {dotted}: {part} is not a section")
    target[last] = parse_value(text)


def parse_value(text: str) -> Any:
    """Return a YAML value; unlike YAML 1.1, `1e-4` is a number."""
    try:
        return float(text) if _looks_scientific(text) else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError) as error:
        raise SpecFileError(f"cannot read the value {text!r}: {error}") from error


def _looks_scientific(text: str) -> bool:
    mantissa, separator, exponent = text.strip().lower().partition("e")
    digits = mantissa.lstrip("+-").replace(".", "", 1)
    return bool(separator) and digits.isdigit() and exponent.lstrip("+-").isdigit()
