"""`submit` and `plan`: create a run from a spec, or validate a spec."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from hillclimb.cli.datasets.view import print_environments
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.submission.hardware import estimates, print_estimate, print_hardware
from hillclimb.cli.runs.watch import follow_run
from hillclimb.cli.terminal.console import err, json_of, print_json, print_text
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.client.client import Client
from hillclimb.client.errors import SpecFileError
from hillclimb.client.spec_file import read_spec, with_assignments
from hillclimb.hardware.presets.cloud import RENTED_CLOUDS, CloudRefused, on_cloud
from hillclimb.protocol.payloads.runs import PlanPayload

Json = dict[str, Any]
_FILE = click.Path(path_type=Path, dir_okay=False)
SPEC = click.argument("spec_file", metavar="SPEC", type=_FILE)
SPEC_OR_NONE = click.argument("spec_file", metavar="[SPEC]", required=False, type=_FILE)
PRESET = click.option(
    "--preset", "preset_name", metavar="NAME", help="Use this preset instead of a SPEC."
)
CLOUD = click.option(
    "--cloud",
    type=click.Choice(RENTED_CLOUDS),
    help="Rent its machines from this cloud alone; any: from those it lists.",
)
SET = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override one key of the spec."
)
PRICES_PAUSE_S = 1.0
FIRST_EVENTS = 100
"""Events that are searched for warnings: at most one per environment and lint error, and a few
more."""


@main.command()
@SPEC_OR_NONE
@PRESET
@CLOUD
@SET
@click.option("--watch", "wait", is_flag=True, help="Follow the run to its end.")
@click.option(
    "--idempotency-key",
    metavar="KEY",
    help="Repeated submissions with this key create only one run.",
)
@command
def submit(  # noqa: PLR0913 - one parameter per option
    *,
    spec_file: Path | None,
    preset_name: str | None,
    cloud: str | None,
    assignments: tuple[str, ...],
    wait: bool,
    idempotency_key: str | None,
    as_json: bool,
) -> None:
    """Create a run from SPEC (YAML or JSON), or from a preset."""
    with connect() as client:
        spec = _spec(client, spec_file, preset_name, cloud, assignments)
        run = client.submit(spec, idempotency_key=idempotency_key)
        may_warn = run.spec["data"].get("dataset") or run.spec["backend"].get("skypilot")
        if may_warn and not wait:
            _print_warnings(client, run.id)
        if wait:
            sys.exit(follow_run(client, run.id, as_json=as_json))
        if as_json:
            print_json(run)
        else:
            print_text(f"{run.id}  {run.status}  {client.url}/runs/{run.id}")


@main.command()
@SPEC_OR_NONE
@PRESET
@CLOUD
@SET
@click.option(
    "--model-config",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Estimate by the model shape in this config.json, if model.source does not name one.",
)
@click.option(
    "--wait-prices",
    "wait_s",
    type=FiniteRange(min=0, max=600),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="Longest wait for prices that are not known yet.",
)
@command
def plan(  # noqa: PLR0913 - one parameter per option
    *,
    spec_file: Path | None,
    preset_name: str | None,
    cloud: str | None,
    assignments: tuple[str, ...],
    model_config: Path | None,
    wait_s: float,
    as_json: bool,
) -> None:
    """Validate SPEC and print it with every default filled in; creates nothing.

    For machines to rent it also prints which are eligible, whether the run fits (with the
    arithmetic) and their prices.
    """
    with connect() as client:
        planned = _plan(client, _spec(client, spec_file, preset_name, cloud, assignments), wait_s)
    own = {} if model_config is None else {"estimates": estimates(planned.spec, model_config)}
    if not as_json:
        _print_advice(planned, own.get("estimates", []))
    print_json(json_of(planned) | own if as_json else planned.spec)


def _plan(client: Client, spec: Json, wait_s: float) -> PlanPayload:
    """Return the plan, waiting up to `wait_s` for prices that the service is still querying."""
    planned = client.plan(spec)
    deadline = time.monotonic() + wait_s
    while _waits_for_prices(planned) and time.monotonic() < deadline:
        time.sleep(PRICES_PAUSE_S)
        planned = client.plan(spec)
    return planned


def _waits_for_prices(planned: PlanPayload) -> bool:
    if planned.hardware is None:
        return False
    prices = planned.hardware.prices
    return prices.is_awaited and prices.as_of is None


def _spec(
    client: Client,
    spec_file: Path | None,
    preset_name: str | None,
    cloud: str | None,
    assignments: tuple[str, ...],
) -> Json:
    """Return the spec of the file or of the preset, on the cloud, with the assignments applied.

    Raises:
        click.UsageError: both are named, or neither.
        SpecFileError: the file rents no machines from a cloud.
    """
    if spec_file is not None and preset_name is None:
        spec = read_spec(spec_file)
        return with_assignments(spec if cloud is None else _moved(spec, cloud), assignments)
    if spec_file is None and preset_name is not None:
        return with_assignments(client.preset(preset_name, cloud=cloud).spec, assignments)
    raise click.UsageError("give a SPEC, or --preset NAME")


def _moved(spec: Json, cloud: str) -> Json:
    try:
        return on_cloud(spec, cloud)
    except CloudRefused as error:
        raise SpecFileError(f"--cloud: {error}") from error


def _print_warnings(client: Client, run_id: str) -> None:
    """Print the warnings among the first events of a new run."""
    for event in client.events(run_id, limit=FIRST_EVENTS).data:
        if event.type == "run.warning":
            _warn(event.data["message"])


def _warn(sentence: str) -> None:
    err.print(f"warning: {sentence}", style="yellow", markup=False, soft_wrap=True)


def _guards_by_policy(guards: Json) -> str:
    """Return a line that names the guards of each policy; empty if all of them only report."""
    names: dict[str, list[str]] = {}
    for name, guard in guards.items():
        names.setdefault(guard["policy"] or "off", []).append(name)
    if set(names) == {"alert"}:
        return ""
    order = [policy for policy in ("stop", "pause", "alert", "off") if policy in names]
    return "guards  " + "; ".join(f"{policy}: {', '.join(names[policy])}" for policy in order)


def _print_advice(planned: PlanPayload, own_estimates: list[list[str]]) -> None:
    """Print dataset, hardware and warnings on standard error: standard output is the spec."""
    if dataset := planned.dataset:
        err.print(f"{dataset.name}@{dataset.version}  {dataset.id}", style="bold")
        print_environments(dataset.envs, stderr=True)
    if planned.hardware is not None:
        print_hardware(planned.hardware)
    for lines in own_estimates:
        print_estimate(lines)
    if planned.spec.get("kind") == "train" and (line := _guards_by_policy(planned.spec["guards"])):
        err.print(line, style="dim", soft_wrap=True)
    if planned.from_defaults:
        keys = ", ".join(planned.from_defaults)
        err.print(f"from the defaults of project and operator: {keys}", style="dim", soft_wrap=True)
    for each in planned.spec.get("accepted", ()):
        line = f"needs no flag: {each['path']} on {each['subject']}, accepted here"
        err.print(f"{line} ({each['evidence']})", style="dim", markup=False, soft_wrap=True)
    for warning in planned.warnings:
        _warn(warning)
