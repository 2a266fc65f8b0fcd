"""`capsule`: export a run with all that made it, look at it, and run it again elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import yaml

from hillclimb.blobs.archive.capsule import CapsuleArchive
from hillclimb.cli.main import command, connect, main
from hillclimb.cli.runs.imported import print_imported
from hillclimb.cli.terminal.console import (
    err,
    minute,
    out,
    percent,
    print_json,
    print_table,
    print_text,
    table,
)
from hillclimb.cli.terminal.run_reference import RUN_REFERENCE
from hillclimb.client.capsule.figures import CapsuleEval, capsule_evals
from hillclimb.client.capsule.fork import (
    capsule_spec,
    find_dataset,
    make_dataset,
    missing_parts,
    use_version,
)
from hillclimb.client.client import Client
from hillclimb.client.errors import ApiUnreachable, NotConfigured
from hillclimb.client.spec_file import with_assignments
from hillclimb.protocol.payloads.studies.capsule import CapsuleAttempt, CapsuleManifest

FILE = click.argument("file", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False))
SHORT = 12
"""Digits of a digest in a table."""


@main.group()
def capsule() -> None:
    """Export a run with all that made it, look at it, and run it again elsewhere."""


@capsule.command()
@click.argument("run_id", metavar="RUN", type=RUN_REFERENCE)
@click.option(
    "--to",
    "target",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Default: RUN.capsule.zip.",
)
@click.option("--tasks", is_flag=True, help="Include the rows and the split of its dataset.")
@command
def export(*, run_id: str, target: Path | None, tasks: bool, as_json: bool) -> None:
    """Write the capsule of RUN to a file, and verify it."""
    path = target or Path(f"{run_id}.capsule.zip")
    partial = path.with_name(f".{path.name}.partial")
    with connect() as client:
        try:
            with partial.open("wb") as file:
                for block in client.capsule(run_id, tasks=tasks):
                    file.write(block)
            with _open(partial) as archive:
                members = archive.manifest.members
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    if as_json:
        sizes = {name: member.size_bytes for name, member in members.items()}
        print_json({"run_id": run_id, "file": str(path), "members": sizes})
    else:
        print_text(f"{path}: {path.stat().st_size:,} bytes, {len(members) + 1} members")


@capsule.command()
@FILE
@command
def show(*, file: Path, as_json: bool) -> None:
    """Verify every digest of a capsule and print its facts.

    The pass rates are computed anew from its outcomes.
    """
    with _open(file) as archive:
        manifest, evals = archive.manifest, capsule_evals(archive)
    if as_json:
        print_json(manifest.model_dump(mode="json") | {"evals": [_rates(each) for each in evals]})
        return
    _print_facts(manifest)
    rows = [(a.number, a.from_step, a.end_code or a.state, *_machine(a)) for a in manifest.attempts]
    print_table(table(("attempt>", "from step>", "end", "machines", "USD/h>"), rows))
    if evals:
        lines = [(each.step, each.decoding, *_columns(each)) for each in evals]
        columns = ("step>", "decoding", "pass@1>", "pass@n>", "n>", "coverage>")
        print_table(table(columns, lines))
    print_text(f"{len(manifest.members)} members verified against {file.name}'s manifest")


@capsule.command()
@FILE
@command
def spec(*, file: Path, as_json: bool) -> None:
    """Print the spec of a capsule as YAML, for `hillclimb submit`.

    Says on standard error what this installation lacks: dataset version, checkpoint, machines, a
    model that is a path.
    """
    with _open(file) as archive:
        body = capsule_spec(archive)
        try:
            with connect() as client:
                dataset_facts = archive.manifest.dataset
                version = find_dataset(client, dataset_facts) if dataset_facts else None
                if version is not None:
                    use_version(body, version)
                lacks = missing_parts(client, archive, body)
        except (NotConfigured, ApiUnreachable) as error:
            lacks = [f"not checked what this installation lacks: {error}"]
    for sentence in lacks:
        err.print(sentence, style="yellow", markup=False, soft_wrap=True)
    if as_json:
        print_json({"spec": body, "lacks": lacks})
    else:
        sys.stdout.write(yaml.safe_dump(body, sort_keys=False, allow_unicode=True))


@capsule.command()
@FILE
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Override one key of the spec."
)
@click.option("--dataset", metavar="NAME", help="Create the dataset under this name.")
@command
def fork(*, file: Path, assignments: tuple[str, ...], dataset: str | None, as_json: bool) -> None:
    """Submit the spec of a capsule here, with its seeds and its dataset.

    A dataset version of the same digest is used if there is one, else it is created from the
    capsule's rows (`export --tasks`).
    """
    with _open(file) as archive, connect() as client:
        body = _ready(client, archive, dataset)
        run = client.submit(with_assignments(body, assignments))
        is_same = run.config_hash == archive.manifest.config_hash
        if as_json:
            print_json(run)
            return
        out.print(f"{run.id}  {run.status}  {client.url}/runs/{run.id}", soft_wrap=True)
        same = "the same config_hash as" if is_same else "another config_hash than"
        print_text(f"{same} run {archive.manifest.run_id}: {run.config_hash[:SHORT]}", style="dim")


@capsule.command("import")
@FILE
@command
def bring(*, file: Path, as_json: bool) -> None:
    """Import the run of a capsule: it has ended, with its events, outcomes and evaluations.

    Importing the same capsule again returns the run of the first import.
    """
    with _open(file), connect() as client:
        print_imported(client, client.imports.capsule(file), as_json=as_json)


def _ready(client: Client, archive: CapsuleArchive, name: str | None) -> dict[str, Any]:
    """Return the spec with the dataset version of this installation, which is made if missing."""
    body, dataset_facts = capsule_spec(archive), archive.manifest.dataset
    if dataset_facts is not None:
        named = dataset_facts.model_copy(update={"name": name or dataset_facts.name})
        version = find_dataset(client, named)
        use_version(body, version or make_dataset(client, archive, named.name))
    return body


@contextmanager
def _open(path: Path) -> Iterator[CapsuleArchive]:
    """Yield a capsule whose every digest is right."""
    with CapsuleArchive.open(path) as archive:
        archive.verify()
        yield archive


def _print_facts(manifest: CapsuleManifest) -> None:
    code, dataset = manifest.code, manifest.dataset
    ended = f", ended {minute(manifest.ended_at)}" if manifest.ended_at else ""
    facts = {
        "run": f"{manifest.name}  {manifest.run_id}",
        "status": manifest.status + (f" ({manifest.end_code})" if manifest.end_code else ""),
        "submitted": f"{minute(manifest.created_at)}{ended} (UTC)",
        "config hash": manifest.config_hash,
        "code": _code(code.package_version, code.revision) if code else "not recorded",
        "source digest": code.source_digest if code else None,
        "dataset": f"{dataset.name}@{dataset.version}, {dataset.num_train:,} train and"
        f" {dataset.num_eval:,} eval tasks"
        if dataset
        else "generated tasks",
        "dataset digest": dataset.digest if dataset else None,
        "seeds": ", ".join(f"{key} {value}" for key, value in manifest.seeds.items()),
        "events": f"{manifest.last_seq:,}",
    }
    for name, fact in facts.items():
        if fact:
            print_text(f"{name:<15} {fact}")
    if code and code.locks:
        print_text("locks           " + _digests(code.locks), style="dim")
    for trainer in manifest.trainers:
        versions = dict(trainer.versions)
        digest = versions.pop("source_digest", None)
        print_text(f"trainer {trainer.attempt:<7} {trainer.engine}, " + _versions(versions))
        if code and digest and digest != code.source_digest:
            print_text(f"{'':<15} its code is not the service's: {digest[:SHORT]}", style="yellow")


def _code(version: str, revision: str | None) -> str:
    return f"{version}, revision {revision or 'not known'}"


def _versions(versions: dict[str, str]) -> str:
    revision = versions.pop("revision", None)
    names = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"{names}, {revision[:SHORT]}" if revision else names


def _digests(locks: dict[str, str]) -> str:
    return "\n                ".join(f"{name} {sha256[:SHORT]}" for name, sha256 in locks.items())


def _machine(attempt: CapsuleAttempt) -> tuple[str, str]:
    cluster = attempt.cluster
    if cluster is None:
        return "runner", ""
    sku = f"{cluster.num_nodes} x {cluster.sku or 'unknown'} on {cluster.cloud or 'none yet'}"
    return sku, "" if cluster.hourly_usd is None else f"{cluster.hourly_usd:.2f}"


def _columns(each: CapsuleEval) -> tuple[str, str, int, str]:
    at_n = "" if each.at_n is None else f"{percent(each.at_n.value)} at {each.at_n.k}"
    return percent(each.all.value), at_n, each.all.num_graded, percent(each.all.coverage)


def _rates(each: CapsuleEval) -> dict[str, Any]:
    return {
        "step": each.step,
        "decoding": each.decoding,
        "attempt": each.attempt,
        "pass_at_1": each.all.value,
        "pass_at_n": None if each.at_n is None else {"k": each.at_n.k, "value": each.at_n.value},
        "n": each.all.num_graded,
        "envs": {env: rate.value for env, rate in each.envs.items()},
    }
