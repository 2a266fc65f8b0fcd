"""Prints what a plan says of machines: which will do, the arithmetic, the costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hillclimb.cli.console import err, print_table, table
from hillclimb.errors import SpecFileError
from trainer.contract.clusters.plan import hardware_plan
from trainer.contract.clusters.shapes import ModelShape, UnknownShape, shape_of_config
from trainer.contract.spec import RunSpec

Json = dict[str, Any]


def print_hardware(hardware: Json) -> None:
    """Print the machines, the arithmetic of the first that is taken, and the costs, on stderr."""
    rows = [
        [each["label"], _price(each["hourly_usd"]), "no" if each["why_not"] else "yes"]
        for each in hardware["candidates"]
    ]
    print_table(table(("machines", "USD an hour", "will do"), rows), stderr=True)
    shown = [each["estimate"] for each in hardware["candidates"] if not each["why_not"]]
    estimate = next((each for each in shown if each), None)
    if estimate is not None:
        print_estimate(estimate["lines"])
    _say(
        f"a cluster costs {_price(hardware['hourly_usd'])} USD an hour, and"
        f" {_price(hardware['longest_usd'])} USD in backend.skypilot.max_hours"
        f" ({hardware['max_hours']:g} h)"
    )
    _say(hardware["prices"]["told"])
    if hardware["run_hours"] is not None:
        hours = hardware["run_hours"]
        _say(
            f"all steps take {hours['low']:.0f} to {hours['high']:.0f} h and"
            f" {_price(hardware['run_usd'])} USD, by arithmetic over data sheets"
        )


def print_estimate(lines: list[str]) -> None:
    """Print arithmetic on stderr."""
    for line in lines:
        _say(line)


def estimates(spec: Json, config: Path) -> list[list[str]]:
    """Return for each candidate whether the run fits it, by the model shape in `config`.

    Raises:
        SpecFileError: the file is no config of a Qwen3.
    """
    plan = hardware_plan(_parsed(spec), shape=_shape(config))
    if plan is None:
        raise SpecFileError("--model-config is for specs with backend.skypilot")
    return [
        [f"{each.candidate.label}: {each.why_not or 'will do'}", *each.estimate.lines]
        for each in plan.candidates
        if each.estimate is not None
    ]


def _parsed(spec: Json) -> RunSpec:
    try:
        return RunSpec.model_validate(spec)
    except ValidationError as error:
        raise SpecFileError(
            "the service is of another version than this command line: --model-config needs the"
            " same"
        ) from error


def _shape(path: Path) -> ModelShape:
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SpecFileError(f"cannot read {path}: {error}") from error
    if not isinstance(config, dict):
        raise SpecFileError(f"{path} holds no config")
    try:
        return shape_of_config(config)
    except UnknownShape as unknown:
        raise SpecFileError(f"{path}: {unknown}") from unknown


def _price(span: Json | None) -> str:
    if span is None:
        return "unknown"
    low, high = f"{span['low']:,.2f}", f"{span['high']:,.2f}"
    return low if low == high else f"{low} to {high}"


def _say(line: str) -> None:
    err.print(line, markup=False, soft_wrap=True)
