"""`submit` and `plan`: send a spec, or see what it would become."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from hillclimb.cli.console import err, out, print_json
from hillclimb.cli.dataset_view import print_environments
from hillclimb.cli.finite import FiniteRange
from hillclimb.cli.hardware import estimates, print_estimate, print_hardware
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.watch import follow_run
from hillclimb.client import Client, Json
from hillclimb.spec_file import read_spec, with_assignments

_FILE = click.Path(path_type=Path, dir_okay=False)
SPEC = click.argument("spec_file", metavar="SPEC", type=_FILE)
SPEC_OR_NONE = click.argument("spec_file", metavar="[SPEC]", required=False, type=_FILE)
PRESET = click.option(
    "--preset", "preset_name", metavar="NAME", help="Take this preset instead of a SPEC."
)
SET = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override one key of the spec."
)
PRICES_PAUSE_S = 1.0
FIRST_EVENTS = 100
"""At most one warning for each environment that a spec may have and each error of lint, and a few
more."""


@main.command()
@SPEC_OR_NONE
@PRESET
@SET
@click.option("--watch", "wait", is_flag=True, help="Follow the run to its end.")
@click.option("--idempotency-key", metavar="KEY", help="Make a repeated submit the same run.")
@command
def submit(
    *,
    spec_file: Path | None,
    preset_name: str | None,
    assignments: tuple[str, ...],
    wait: bool,
    idempotency_key: str | None,
    as_json: bool,
) -> None:
    """Create a run from SPEC (YAML or JSON), or from a preset."""
    with connect() as client:
        spec = _spec(client, spec_file, preset_name, assignments)
        run = client.submit(spec, idempotency_key=idempotency_key)
        of_note = run["spec"]["data"].get("dataset") or run["spec"]["backend"].get("skypilot")
        if of_note and not wait:
            _tell_warnings(client, run["id"])
        if wait:
            sys.exit(follow_run(client, run["id"], as_json=as_json))
        if as_json:
            print_json(run)
        else:
            out.print(f"{run['id']}  {run['status']}  {client.url}/runs/{run['id']}")


@main.command()
@SPEC_OR_NONE
@PRESET
@SET
@click.option(
    "--model-config",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Estimate by the shape in this config.json, where model.source does not tell.",
)
@click.option(
    "--wait-prices",
    "wait_s",
    type=FiniteRange(min=0, max=600),
    default=30,
    show_default=True,
    metavar="SECONDS",
    help="Wait so long for prices that nobody has asked for before.",
)
@command
def plan(
    *,
    spec_file: Path | None,
    preset_name: str | None,
    assignments: tuple[str, ...],
    model_config: Path | None,
    wait_s: float,
    as_json: bool,
) -> None:
    """Validate SPEC and print it with every default filled in; creates nothing.

    Of machines to be rented: which of them will do, whether the run fits, with the arithmetic, and
    what they cost.
    """
    with connect() as client:
        planned = _plan(client, _spec(client, spec_file, preset_name, assignments), wait_s)
    if model_config is not None:
        planned["estimates"] = estimates(planned["spec"], model_config)
    if not as_json:
        _print_advice(planned)
    print_json(planned if as_json else planned["spec"])


def _plan(client: Client, spec: Json, wait_s: float) -> Json:
    """Return the plan with prices where they can be had soon: the service has to ask for them."""
    planned = client.plan(spec)
    deadline = time.monotonic() + wait_s
    while _waits_for_prices(planned) and time.monotonic() < deadline:
        time.sleep(PRICES_PAUSE_S)
        planned = client.plan(spec)
    return planned


def _waits_for_prices(planned: Json) -> bool:
    prices = (planned.get("hardware") or {}).get("prices") or {}
    return bool(prices.get("is_awaited")) and prices.get("as_of") is None


def _spec(
    client: Client,
    spec_file: Path | None,
    preset_name: str | None,
    assignments: tuple[str, ...],
) -> Json:
    """Return the spec of the file or of the preset, whichever is named, with keys set.

    Raises:
        click.UsageError: both are named, or neither.
    """
    if spec_file is not None and preset_name is None:
        return read_spec(spec_file, assignments)
    if spec_file is None and preset_name is not None:
        return with_assignments(client.preset(preset_name)["spec"], assignments)
    raise click.UsageError("give a SPEC, or --preset NAME")


def _tell_warnings(client: Client, run_id: str) -> None:
    """Say what the service did otherwise than one might expect: its first events have it."""
    for event in client.events(run_id, limit=FIRST_EVENTS)["data"]:
        if event["type"] == "run.warning":
            _warn(event["data"]["message"])


def _warn(sentence: str) -> None:
    err.print(f"warning: {sentence}", style="yellow", markup=False, soft_wrap=True)


def _print_advice(planned: Json) -> None:
    """Print the dataset's numbers and the warnings on standard error: stdout is the spec."""
    if dataset := planned.get("dataset"):
        err.print(f"{dataset['name']}@{dataset['version']}  {dataset['id']}", style="bold")
        print_environments(dataset["envs"], stderr=True)
    if hardware := planned.get("hardware"):
        print_hardware(hardware)
    for lines in planned.get("estimates", ()):
        print_estimate(lines)
    for warning in planned.get("warnings", ()):
        _warn(warning)
