"""`python -m trainer.jobs.acceptance TARGET …`: climbs a ladder; `hillclimb accept` starts it.

Standard output gets one JSON object per line: the address (`tries`), each check as it begins
(`begins`, with its limit) and as it ends, and after the last one, if all passed, what evidence of
it has besides.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from hillclimb.process.acceptance.ladder import Ladder, climb
from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.process.redactor import Redactor
from trainer.errors import SpecError
from trainer.inputs.accepted_paths import library_versions, own_version, wandb_url
from trainer.jobs.acceptance.fleet import FleetLadder, fleet_account

KEYS = ("FLEET_API_KEY", "TINKER_API_KEY", "WANDB_API_KEY")
PASSED, REFUSED, FAILED = 0, 2, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempted:
    """A ladder and what its evidence has besides the checks."""

    ladder: Ladder
    subject: str
    libraries: tuple[str, ...] = ()


def main() -> int:
    """Climb and return the exit code: 0 passed, 3 a check failed, 2 it cannot begin."""
    arguments = _parser().parse_args()
    values = tuple(os.environ[name] for name in KEYS if os.environ.get(name))
    redactor = Redactor(values)
    # Libraries, and processes that they start, may print: only results go to standard output.
    results = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        attempted = _attempted(arguments, os.environ)
    except SpecError as error:
        sys.stderr.write(f"error: {redactor.text(str(error))}\n")
        return REFUSED

    def report(facts: Mapping[str, object]) -> None:
        results.write(json.dumps(facts) + "\n")
        results.flush()

    report({"tries": attempted.subject})
    observations = asyncio.run(
        climb(
            attempted.ladder,
            redactor,
            report=lambda seen: report(asdict(seen)),
            begin=lambda check: report({"begins": check.name, "limit_s": check.limit_s}),
        )
    )
    if not observations[-1].passed:
        return FAILED
    versions = own_version() | library_versions(*attempted.libraries)
    report({"subject": attempted.subject, "versions": versions})
    return PASSED


def _attempted(arguments: argparse.Namespace, environ: Mapping[str, str]) -> Attempted:
    if arguments.target == "fleet":
        account = fleet_account(environ)
        ladder = FleetLadder(account, arguments.env, arguments.task)
        return Attempted(ladder=ladder, subject=account.base_url.rstrip("/"))
    # Both libraries take seconds to import.
    if arguments.target == "tinker":
        with gc_paused_import():
            from trainer.jobs.acceptance.tinker import TinkerLadder, tinker_account  # noqa: PLC0415

        server = tinker_account(environ)
        return Attempted(
            ladder=TinkerLadder(server, arguments.model),
            subject=server.base_url,
            libraries=("tinker",),
        )
    with gc_paused_import():
        from trainer.jobs.acceptance.wandb import WandbLadder  # noqa: PLC0415

    return Attempted(
        ladder=WandbLadder(environ, project=arguments.project, entity=arguments.entity),
        subject=wandb_url(environ),
        libraries=("wandb",),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.jobs.acceptance")
    targets = parser.add_subparsers(required=True, dest="target", metavar="target")
    fleet = targets.add_parser("fleet")
    fleet.add_argument("--env", required=True)
    fleet.add_argument("--task", required=True)
    tinker = targets.add_parser("tinker")
    tinker.add_argument("--model", required=True)
    wandb = targets.add_parser("wandb")
    wandb.add_argument("--project", required=True)
    wandb.add_argument("--entity")
    return parser


if __name__ == "__main__":
    sys.exit(main())
