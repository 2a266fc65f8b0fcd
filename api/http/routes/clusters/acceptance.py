"""`/v1/acceptance`: evidence that paths work on this installation, and checks by the service."""

from __future__ import annotations

import asyncio
import os
from typing import Annotated

from fastapi import APIRouter, Path

from api.admission.refusals.acceptance import store
from api.admission.refusals.acceptance.errors import AcceptanceRejected, ChecksMisfit
from api.admission.refusals.acceptance.request import ServiceChecksSpec
from api.http.document.openapi import json_body
from api.http.problems import INVALID, KINDS, MALFORMED, documented
from api.http.requests.bodies import parse_body
from api.http.requests.context import Operator, RawBody, Reader, Services, ServicesDep
from api.notices.slack.acceptance import SlackLadder
from api.runs.journal import utc_now
from api.tables import Acceptance
from api.tables.access.identity import NotAllowed, NotAuthenticated, Principal, Scope
from hillclimb.blobs.locate import open_store
from hillclimb.blobs.retry import RetryPolicy
from hillclimb.process.acceptance.evidence import AcceptanceEvidence, PassedCheck
from hillclimb.process.acceptance.ladder import CheckObservation, climb
from hillclimb.process.acceptance.s3 import S3Ladder, place_of_store
from hillclimb.process.acceptance.targets import Target
from hillclimb.process.redactor import Redactor
from hillclimb.protocol.payloads.projects.acceptance import (
    AcceptanceList,
    AcceptancePayload,
    ForgottenAcceptances,
    ObservationPayload,
    ServiceChecks,
)

_S3_SECRETS = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
CHECK_RETRIES = RetryPolicy(total_s=5.0, silence_s=10.0)
"""A check says at once what is wrong."""
router = APIRouter(
    prefix="/v1/acceptance",
    tags=["clusters"],
    responses={**documented(KINDS[NotAuthenticated], KINDS[NotAllowed], INVALID)},
)
TargetName = Annotated[Target, Path(description="A target of `hillclimb accept`.")]


@router.get("", operation_id="list_acceptances", summary="List the evidence of the installation")
def list_acceptances(services: ServicesDep, caller: Reader) -> AcceptanceList:
    """Return all evidence, also what is void by now, with the reason."""
    with services.database.transaction() as session:
        rows = store.list_evidence(session)
        return AcceptanceList(data=[_describe(row, caller) for row in rows])


@router.get("/{target}", operation_id="get_acceptances", summary="Get the evidence of a target")
def get_acceptances(services: ServicesDep, caller: Reader, target: TargetName) -> AcceptanceList:
    """Return the evidence of one target; empty without any."""
    with services.database.transaction() as session:
        rows = store.list_evidence(session, target)
        return AcceptanceList(data=[_describe(row, caller) for row in rows])


@router.post(
    "",
    operation_id="record_acceptance",
    summary="Store evidence of a ladder that passed",
    status_code=201,
    responses={**documented(MALFORMED, INVALID, KINDS[AcceptanceRejected])},
    openapi_extra=json_body("AcceptanceEvidence"),
)
def record_acceptance(services: ServicesDep, caller: Operator, body: RawBody) -> AcceptancePayload:
    """Store it in place of earlier evidence of the same target and subject.

    While it is valid, specs of all projects need no `experimental` for its paths.
    """
    return _record(services, caller, parse_body(AcceptanceEvidence, body))


@router.post(
    "/{target}/checks",
    operation_id="run_service_checks",
    summary="Check the service's own S3 bucket or Slack bot",
    responses={**documented(MALFORMED, INVALID, KINDS[ChecksMisfit])},
    openapi_extra=json_body("ServiceChecksSpec"),
)
def run_service_checks(
    services: ServicesDep, caller: Operator, target: TargetName, body: RawBody
) -> ServiceChecks:
    """Climb the ladder with the service's own settings, and store the evidence if all pass."""
    spec = parse_body(ServiceChecksSpec, body)
    if target == "s3":
        observations, subject = _check_store(services)
    elif target == "slack":
        observations, subject = _check_slack(services, spec.channel)
    else:
        raise ChecksMisfit(
            f"The service has no part in {target}: run `hillclimb accept {target}` where its keys"
            " are."
        )
    acceptance = None
    if all(each.passed for each in observations):
        evidence = AcceptanceEvidence(
            target=target,
            subject=subject,
            versions=store.present_versions(),
            observations=tuple(
                PassedCheck(name=each.name, seen=each.seen, seconds=each.seconds)
                for each in observations
            ),
        )
        acceptance = _record(services, caller, evidence)
    described = [ObservationPayload.model_validate(each) for each in observations]
    return ServiceChecks(target=target, observations=described, acceptance=acceptance)


@router.delete(
    "/{target}",
    operation_id="forget_acceptances",
    summary="Delete the evidence of a target",
)
def forget_acceptances(
    services: ServicesDep, caller: Operator, target: TargetName
) -> ForgottenAcceptances:
    """Delete it: specs need `experimental` for its paths again."""
    del caller
    with services.database.transaction() as session:
        return ForgottenAcceptances(target=target, forgotten=store.forget(session, target))


def _record(
    services: Services, caller: Principal, evidence: AcceptanceEvidence
) -> AcceptancePayload:
    with services.database.transaction() as session:
        row = store.record(session, evidence, actor=caller.actor, now=utc_now())
        return _describe(row, caller)


def _describe(row: Acceptance, caller: Principal) -> AcceptancePayload:
    """Return the payload; who recorded it, and by which run of some project, is for operators."""
    facts = {name: getattr(row, name) for name in AcceptancePayload.model_fields.keys() & vars(row)}
    if Scope.OPERATOR.value not in caller.scopes:
        facts |= {"run": None, "recorded_by": "an operator"}
    return AcceptancePayload.model_validate(facts | {"void": store.why_void(row)})


def _check_store(services: Services) -> tuple[tuple[CheckObservation, ...], str]:
    url = services.settings.blobs_url
    if not url.startswith("s3://"):
        raise ChecksMisfit(
            "The service's blob store is a directory: set HILLCLIMB_BLOBS_URL to s3://BUCKET/PREFIX"
            " to check a bucket."
        )
    ladder = S3Ladder(open_store(url, CHECK_RETRIES))
    return asyncio.run(climb(ladder, _redactor(services))), place_of_store(url)


def _check_slack(
    services: Services, channel: str | None
) -> tuple[tuple[CheckObservation, ...], str]:
    channel = channel or services.settings.slack_channel
    if services.settings.slack_bot_token is None:
        raise ChecksMisfit(
            "The service has no SLACK_BOT_TOKEN: set it and start the service again."
        )
    if channel is None:
        raise ChecksMisfit(
            "Name the channel to post to: `hillclimb accept slack --channel '#NAME'`."
        )
    ladder = SlackLadder(services.slack, channel)
    observations = asyncio.run(climb(ladder, _redactor(services)))
    return observations, f"{channel} of {ladder.workspace}"


def _redactor(services: Services) -> Redactor:
    """Return a redactor of the secrets that the checks use: of the settings and of botocore."""
    token = services.settings.slack_bot_token
    values = [] if token is None else [token.get_secret_value()]
    values += [os.environ[name] for name in _S3_SECRETS if os.environ.get(name)]
    return Redactor(tuple(values))
