"""Runs a target's ladder where it belongs, and stores the evidence."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hillclimb.cli.tools.accept.progress import Progress
from hillclimb.cli.tools.accept.rounds import RoundsLadder
from hillclimb.cli.tools.data_plane import as_flags, find_python
from hillclimb.client.client import Client
from hillclimb.client.errors import LadderRefused
from hillclimb.process.acceptance.evidence import AcceptanceEvidence, PassedCheck
from hillclimb.process.acceptance.ladder import CheckObservation, climb
from hillclimb.process.acceptance.targets import FACTS, Target
from hillclimb.process.code_revision import code_revision
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.payloads.projects.acceptance import AcceptancePayload

MODULE = "trainer.jobs.acceptance"
FAILED = 3
"""Exit code of that module after a check that failed."""
OPERATOR = "operator"
"""Scope of a key that may store evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Climbed:
    """The checks of a ladder, and the evidence that was stored if all passed."""

    target: Target
    observations: tuple[CheckObservation, ...]
    acceptance: AcceptancePayload | None

    @property
    def passed(self) -> bool:
        """True where every check passed."""
        return self.acceptance is not None


def climb_in_service(
    client: Client, target: Target, channel: str | None, progress: Progress
) -> Climbed:
    """Let the service climb with its own settings; its checks are printed at the end."""
    progress.announce(target)
    progress.locate(f"{client.url}; its checks are shown once the last of them has ended")
    checks = client.acceptance.run_service_checks(target, channel=channel)
    observations = tuple(
        CheckObservation(**each.model_dump(mode="json")) for each in checks.observations
    )
    for observation in observations:
        progress.end(observation)
    return Climbed(target=target, observations=observations, acceptance=checks.acceptance)


def require_operator(client: Client) -> None:
    """Refuse a key that could not store the evidence, before anything is made or rented.

    Raises:
        LadderRefused: the key lacks the scope.
    """
    if OPERATOR not in client.access.whoami().scopes:
        raise LadderRefused(
            "evidence holds for the whole installation: use a key with the scope `operator`"
            " (docs/access.md)"
        )


def climb_rounds(
    client: Client, ladder: RoundsLadder, target: Target, progress: Progress
) -> Climbed:
    """Climb by a run of the service; `require_operator` comes first."""
    progress.announce(target)
    observations = asyncio.run(
        climb(
            ladder,
            Redactor.of(os.environ),
            report=progress.end,
            begin=lambda check: progress.begin(check.name, check.limit_s),
        )
    )
    if not observations[-1].passed:
        return Climbed(target=target, observations=observations, acceptance=None)
    evidence = AcceptanceEvidence(
        target=target,
        subject=ladder.subject,
        paths=ladder.paths,
        versions=_own_version() | ladder.versions,
        observations=_passed(observations),
        run=ladder.run_id,
        cost_usd=ladder.spent_usd(),
    )
    return Climbed(
        target=target, observations=observations, acceptance=client.acceptance.record(evidence)
    )


def climb_here(
    client: Client, target: Target, options: Mapping[str, str | None], progress: Progress
) -> Climbed:
    """Climb in the data plane of this machine, with the keys of this environment.

    Raises:
        DataPlaneMissing: there is none here.
        LadderRefused: it lacks a key, or a setting.
    """
    progress.announce(target)
    observations, facts = _run([target, *as_flags(options)], progress)
    if facts is None:
        return Climbed(target=target, observations=observations, acceptance=None)
    evidence = AcceptanceEvidence(
        target=target,
        subject=facts["subject"],
        paths=FACTS[target].lifts,
        versions=facts["versions"],
        observations=_passed(observations),
    )
    return Climbed(
        target=target, observations=observations, acceptance=client.acceptance.record(evidence)
    )


def _run(
    arguments: Sequence[str], progress: Progress
) -> tuple[tuple[CheckObservation, ...], dict[str, Any] | None]:
    """Return the checks, and what evidence has besides; None after a failure."""
    command = [str(find_python()), "-m", MODULE, *arguments]
    observations: list[CheckObservation] = []
    facts: dict[str, Any] | None = None
    with tempfile.TemporaryFile("w+") as log:
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True) as process:
            assert process.stdout is not None
            for line in process.stdout:
                value = json.loads(line)
                if "subject" in value:
                    facts = value
                elif "tries" in value:
                    progress.locate(value["tries"])
                elif "begins" in value:
                    progress.begin(value["begins"], value["limit_s"])
                else:
                    observations.append(CheckObservation(**value))
                    progress.end(observations[-1])
        log.seek(0)
        errors = log.read().strip().splitlines()
    if process.returncode not in (0, FAILED):
        last = errors[-1] if errors else f"it ended with {process.returncode}"
        raise LadderRefused(Redactor.of(os.environ).text(last.removeprefix("error: ")))
    return tuple(observations), facts


def _passed(observations: Sequence[CheckObservation]) -> tuple[PassedCheck, ...]:
    return tuple(
        PassedCheck(name=each.name, seen=each.seen, seconds=each.seconds) for each in observations
    )


def _own_version() -> dict[str, str]:
    return {"hillclimb": code_revision().package_version}
