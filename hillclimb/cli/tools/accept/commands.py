"""`accept`: small real checks with your own keys, whose evidence lifts `experimental`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Literal, TypeVar

import click

from hillclimb.cli.main import command, connect, main
from hillclimb.cli.stack.lifecycle import read_options
from hillclimb.cli.terminal.console import (
    json_of,
    print_json,
    print_table,
    print_text,
    table,
    timestamp,
)
from hillclimb.cli.terminal.exits import Exit
from hillclimb.cli.terminal.finite import FiniteRange
from hillclimb.cli.tools.accept.gpu_here import gpus_here
from hillclimb.cli.tools.accept.ladders import (
    Climbed,
    climb_here,
    climb_in_service,
    climb_rounds,
    require_operator,
)
from hillclimb.cli.tools.accept.progress import Progress, print_check
from hillclimb.cli.tools.accept.rounds import (
    Json,
    RoundsLadder,
    is_for_runner,
    num_gpus_of,
    on_one_gpu,
    rented,
    tiny_spec,
)
from hillclimb.client.client import Client
from hillclimb.client.spec_file import read_spec, with_assignments
from hillclimb.process.acceptance.targets import FACTS, TARGETS, Target, versions_that_matter
from hillclimb.protocol.payloads.projects.acceptance import AcceptancePayload

F = TypeVar("F", bound=Callable[..., object])
DEFAULT_MODEL = "builtin:tiny-qwen3-a"
FORGET = click.option(
    "--forget", is_flag=True, help="Delete the evidence instead: the flag is needed again."
)
SET = click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override one key of the spec."
)
SPEC = click.option(
    "--spec",
    "spec_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Start from this spec instead of the tiny one; it still trains two rounds.",
)
MODEL = click.option(
    "--model", default=DEFAULT_MODEL, show_default=True, help="Model, as `model.source` of a spec."
)
INFRA = click.option("--infra", help="Rent there: a cloud, region or cluster as in a spec.")
ACCELERATORS = click.option("--accelerators", help="GPUs of one node: `H100:1`.")
MAX_USD = click.option(
    "--max-usd",
    type=FiniteRange(0, min_open=True),
    default=5.0,
    show_default=True,
    help="Budget of rented machines; the run pauses there, and an hour ends them anyway.",
)


@main.group(invoke_without_command=True)
@click.option("--list", "lists", is_flag=True, help="List the targets and what each needs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
@click.pass_context
def accept(context: click.Context, *, lists: bool, as_json: bool) -> None:
    """Check a path for real with your own keys; evidence of it lifts `experimental` for it.

    Each target is a ladder of small checks. The first that fails ends it and names the remedy; if
    all pass, the service stores what was seen, with versions.
    """
    if context.invoked_subcommand is not None:
        return
    if not lists:
        print_text(context.get_help())
        return
    facts = {name: asdict(FACTS[name]) for name in TARGETS}
    if as_json:
        print_json(facts)
        return
    rows = [(name, FACTS[name].about, FACTS[name].needs, FACTS[name].cost) for name in TARGETS]
    print_table(table(["target", "checks|", "needs|", "costs|"], rows))


@accept.command()
@click.argument("target", type=click.Choice(TARGETS), required=False)
@command
def show(*, target: Target | None, as_json: bool) -> None:
    """Show the evidence of TARGET, or of all, and what is void by now."""
    with connect() as client:
        page = client.acceptance.list(target)
    if as_json:
        print_json(page)
        return
    rows = [
        (
            each.target,
            each.subject,
            ", ".join(each.paths) or "–",
            timestamp(each.created_at),
            each.recorded_by,
            f"void: {each.void}" if each.void else "valid",
        )
        for each in page.data
    ]
    columns = ["target", "of|", "lifts|", "since", "by|", "state|"]
    print_table(
        table(columns, rows), empty="no evidence: hillclimb accept --list names the targets"
    )
    for each in page.data if target is not None else ():
        for check in each.observations:
            print_check("ok", check.name, check.seen, check.seconds)


@accept.command()
@SPEC
@MODEL
@SET
@INFRA
@ACCELERATORS
@MAX_USD
@FORGET
@command
def gpu(  # noqa: PLR0913 - one parameter per option
    *,
    spec_file: Path | None,
    model: str,
    assignments: tuple[str, ...],
    infra: str | None,
    accelerators: str | None,
    max_usd: float,
    forget: bool,
    as_json: bool,
) -> None:
    """Train two tiny rounds on a GPU: of a runner, or rented with --infra and --accelerators."""
    if forget:
        _forget("gpu", as_json=as_json)
        return
    spec = _base("gpu", spec_file, model)
    if (infra is None) is not (accelerators is None):
        raise click.UsageError("rent a GPU with --infra and --accelerators together")
    if infra is not None:
        machines = {"infra": infra, "accelerators": accelerators}
        spec = rented(spec, machines, nodes=1, max_usd=max_usd)
    spec = with_assignments(spec, assignments)
    num_rented = num_gpus_of(accelerators) if accelerators is not None else None
    _climb_gpu(spec, num_rented, is_tiny=spec_file is None, as_json=as_json)


@accept.command()
@SPEC
@MODEL
@SET
@INFRA
@ACCELERATORS
@click.option(
    "--nodes", type=click.IntRange(2, 64), default=2, show_default=True, help="Machines to rent."
)
@MAX_USD
@FORGET
@command
def cluster(  # noqa: PLR0913 - one parameter per option
    *,
    spec_file: Path | None,
    model: str,
    assignments: tuple[str, ...],
    infra: str | None,
    accelerators: str | None,
    nodes: int,
    max_usd: float,
    forget: bool,
    as_json: bool,
) -> None:
    """Train two tiny rounds over several machines, rented at --infra."""
    if forget:
        _forget("cluster", as_json=as_json)
        return
    spec = _base("cluster", spec_file, model)
    if infra is not None:
        machines = {"infra": infra} | ({"accelerators": accelerators} if accelerators else {})
        spec = rented(spec, machines, nodes=nodes, max_usd=max_usd)
    elif "backend" not in spec:
        raise click.UsageError("name where to rent (--infra), or a --spec with backend.skypilot")
    spec = with_assignments(spec, assignments)
    with connect() as client:
        require_operator(client)
        _climb_rounds(client, "cluster", spec, as_json=as_json)


@accept.command()
@click.option("--env", help="Environment of the platform.")
@click.option("--task", help="Key of a task of it that has a verifier.")
@FORGET
@command
def fleet(*, env: str | None, task: str | None, forget: bool, as_json: bool) -> None:
    """Create, reset, call, verify and delete an instance, with FLEET_API_KEY of this environment.

    FLEET_BASE_URL names another platform than Fleet's own.
    """
    if forget:
        _forget("fleet", as_json=as_json)
    elif env is None or task is None:
        raise click.UsageError("name an environment of the platform and a task: --env, --task")
    else:
        _climb_here("fleet", {"env": env, "task": task}, as_json=as_json)


@accept.command()
@click.option("--model", help="The server's name of a model, such as Qwen/Qwen3-8B.")
@FORGET
@command
def tinker(*, model: str | None, forget: bool, as_json: bool) -> None:
    """Train one step of a tiny adapter and sample, with TINKER_API_KEY of this environment.

    TINKER_BASE_URL names another server than Tinker's own.
    """
    if forget:
        _forget("tinker", as_json=as_json)
    elif model is None:
        raise click.UsageError("name a model of the server: --model")
    else:
        _climb_here("tinker", {"model": model}, as_json=as_json)


@accept.command()
@click.option("--project", default="hillclimb-accept", show_default=True, help="W&B's project.")
@click.option("--entity", help="Team or user; default: that of the key.")
@FORGET
@command
def wandb(*, project: str, entity: str | None, forget: bool, as_json: bool) -> None:
    """Log a tiny run, read it back and delete it, with WANDB_API_KEY of this environment.

    WANDB_BASE_URL names another server than W&B's own.
    """
    if forget:
        _forget("wandb", as_json=as_json)
    else:
        _climb_here("wandb", {"project": project, "entity": entity}, as_json=as_json)


@accept.command()
@click.option("--channel", help="Channel to post to; default: the service's own.")
@FORGET
@command
def slack(*, channel: str | None, forget: bool, as_json: bool) -> None:
    """Let the service's bot post a message in --channel, change it and delete it."""
    _in_service("slack", channel, forget=forget, as_json=as_json)


@accept.command()
@FORGET
@command
def s3(*, forget: bool, as_json: bool) -> None:
    """Let the service put, list, upload in parts, write once, presign and delete in its bucket."""
    _in_service("s3", None, forget=forget, as_json=as_json)


def _base(target: Target, spec_file: Path | None, model: str) -> Json:
    if spec_file is None:
        return tiny_spec(f"hillclimb accept {target}", model)
    short = ("schedule.total_steps=2", "checkpoints.interval=2", "experimental=true")
    return with_assignments(read_spec(spec_file), short)


def _climb_gpu(spec: Json, num_rented: int | None, *, is_tiny: bool, as_json: bool) -> None:
    with connect() as client:
        require_operator(client)
        num_gpus = gpus_here(client.url, read_options()) if is_for_runner(spec) else num_rented
        if is_tiny and num_gpus == 1:
            spec = on_one_gpu(spec)
        _climb_rounds(client, "gpu", spec, as_json=as_json)


def _climb_rounds(
    client: Client, target: Literal["gpu", "cluster"], spec: Json, *, as_json: bool
) -> None:
    ladder = RoundsLadder(client, spec, target)
    with Progress(is_silent=as_json) as progress:
        climbed = climb_rounds(client, ladder, target, progress)
    _conclude(climbed, as_json=as_json)


def _climb_here(target: Target, options: dict[str, str | None], *, as_json: bool) -> None:
    with connect() as client, Progress(is_silent=as_json) as progress:
        require_operator(client)
        climbed = climb_here(client, target, options, progress)
    _conclude(climbed, as_json=as_json)


def _in_service(target: Target, channel: str | None, *, forget: bool, as_json: bool) -> None:
    if forget:
        _forget(target, as_json=as_json)
        return
    with connect() as client, Progress(is_silent=as_json) as progress:
        climbed = climb_in_service(client, target, channel, progress)
    _conclude(climbed, as_json=as_json)


def _forget(target: Target, *, as_json: bool) -> None:
    with connect() as client:
        forgotten = client.acceptance.forget(target)
    if as_json:
        print_json(forgotten)
    elif forgotten.forgotten:
        print_text(f"the evidence of {target} is forgotten: its paths need the flag again")
    else:
        print_text(f"there was no evidence of {target}")


def _conclude(climbed: Climbed, *, as_json: bool) -> None:
    """Print what the evidence changes; exit with 1 after a failure."""
    if as_json:
        stored = None if climbed.acceptance is None else json_of(climbed.acceptance)
        print_json(
            {
                "target": climbed.target,
                "passed": climbed.passed,
                "observations": [asdict(each) for each in climbed.observations],
                "acceptance": stored,
            }
        )
    elif climbed.acceptance is not None:
        _print_stored(climbed.target, climbed.acceptance)
    if not climbed.passed:
        sys.exit(Exit.ERROR)


def _print_stored(target: Target, stored: AcceptancePayload) -> None:
    matter = ", ".join(
        f"{name} {stored.versions[name]}"
        for name in versions_that_matter(target)
        if name in stored.versions
    )
    lifted = (
        f"specs need no `experimental` for {', '.join(stored.paths)} on {stored.subject}"
        if stored.paths
        else f"{target} at {stored.subject} is recorded; it needs no flag"
    )
    print_text(f"{lifted}, until one of these changes: {matter}")
