"""Prints the hardware of a plan: eligible machines, memory arithmetic, prices."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hillclimb.cli.terminal.console import err, print_table, table
from hillclimb.client.errors import SpecFileError
from hillclimb.hardware.model.shapes import ModelShape, UnknownShape, shape_of_config
from hillclimb.hardware.plan import hardware_plan
from hillclimb.protocol.payloads.hardware import HardwarePayload, RangePayload
from hillclimb.spec.run import RunSpec


def print_hardware(hardware: HardwarePayload) -> None:
    """Print machines, the arithmetic of the first eligible one, and prices on standard error."""
    rows = [
        [each.label, _price(each.hourly_usd), "no" if each.why_not else "yes"]
        for each in hardware.candidates
    ]
    print_table(table(("machines", "USD an hour", "eligible"), rows), stderr=True)
    eligible = [each.estimate for each in hardware.candidates if not each.why_not]
    estimate = next((each for each in eligible if each is not None), None)
    if estimate is not None:
        print_estimate(estimate.lines)
    if hardware.hourly_usd is not None:
        _print_line(
            f"a cluster costs {_price(hardware.hourly_usd)} USD an hour, and"
            f" {_price(hardware.longest_usd)} USD in backend.skypilot.max_hours"
            f" ({hardware.max_hours:g} h)"
        )
    else:
        _print_line(
            "what a cluster costs is unknown; it ends after backend.skypilot.max_hours"
            f" ({hardware.max_hours:g} h) at the latest"
        )
    _print_line(hardware.prices.summary)
    _print_line(
        "time of a step, hours and price of the run: unknown, no step of this shape was measured"
    )


def print_estimate(lines: Iterable[str]) -> None:
    """Print arithmetic on stderr."""
    for line in lines:
        _print_line(line)


def estimates(spec: Mapping[str, Any], config: Path) -> list[list[str]]:
    """Return the estimate of each candidate by the model shape in `config`, as lines.

    Raises:
        SpecFileError: the file is not a config of a Qwen3, or the spec rents no machines.
    """
    plan = hardware_plan(_parsed(spec), shape=_shape(config))
    if plan is None:
        raise SpecFileError("--model-config is for specs with backend.skypilot")
    return [
        [f"{each.candidate.label}: {each.why_not or 'eligible'}", *each.estimate.lines]
        for each in plan.candidates
        if each.estimate is not None
    ]


def _parsed(spec: Mapping[str, Any]) -> RunSpec:
    try:
        return RunSpec.model_validate(spec)
    except ValidationError as error:
        raise SpecFileError(
            "the service and this command line have different versions: --model-config needs the"
            " same version"
        ) from error


def _shape(path: Path) -> ModelShape:
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SpecFileError(f"cannot read {path}: {error}") from error
    if not isinstance(config, dict):
        raise SpecFileError(f"{path} is not a model config")
    try:
        return shape_of_config(config)
    except UnknownShape as unknown:
        raise SpecFileError(f"{path}: {unknown}") from unknown


def _price(span: RangePayload | None) -> str:
    if span is None:
        return "unknown"
    low, high = f"{span.low:,.2f}", f"{span.high:,.2f}"
    return low if low == high else f"{low} to {high}"


def _print_line(line: str) -> None:
    err.print(line, markup=False, soft_wrap=True)
