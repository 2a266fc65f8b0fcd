"""Maps every error to RFC 9457 problem+json; the only module of both domain errors and HTTP."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel, Field

from api.admission.campaigns.errors import CampaignError, CampaignNotFound, CampaignRejected
from api.admission.experiments.errors import (
    ExperimentError,
    ExperimentExists,
    ExperimentNotFound,
    ExperimentRejected,
)
from api.admission.imports.errors import ImportRejected, ImportsBusy, ImportsError
from api.admission.refusals.acceptance.errors import (
    AcceptanceError,
    AcceptanceRejected,
    ChecksMisfit,
    PathNotAccepted,
)
from api.clusters.errors import (
    CloudExclusionNotFound,
    ClustersError,
    NoBudget,
    NoEligibleHardware,
    OrphanNotFound,
    PresetHasNoCloud,
    PresetNotFound,
)
from api.datasets.errors import (
    DatasetNotFound,
    DatasetRejected,
    DatasetsBusy,
    DatasetTooLarge,
    DatasetUnusable,
    ExclusionNotFound,
    RegistryError,
    SourceRefused,
    TaskNotFound,
)
from api.http.payloads.problem_headers import WAITING, headers_at
from api.notices.errors import (
    LinkCodeRejected,
    LinkNotFound,
    NoticeError,
    RateLimited,
    RequestForged,
    SlackNotSetUp,
    SlackRefused,
    SlackUnavailable,
)
from api.notices.webhooks.errors import (
    NotDelivered,
    WebhookError,
    WebhookNotFound,
    WebhookRejected,
)
from api.results.artifacts.errors import ArtifactError, ArtifactNotFound, ArtifactRemoved
from api.results.errors import (
    EvalError,
    IssueClosed,
    IssueNotFound,
    IssueRejected,
    MixedDetectors,
    NoLedger,
    NoSuchEval,
    NoSuchProbe,
    NoSuchRescoring,
    NoSuchValidation,
    NotRescorable,
    RescoringBusy,
    TableRejected,
    TooManyPoints,
)
from api.runs.errors import (
    AddressRefused,
    AttemptNotClaimed,
    AttemptNotFound,
    AttemptSuperseded,
    CheckpointMisfit,
    CheckpointNotFound,
    CursorRejected,
    DefaultsMisfit,
    ForkRejected,
    GuardTripNotFound,
    InvalidTransition,
    LeaseLost,
    ModelUnsupported,
    NothingToResume,
    RunDeleted,
    RunError,
    RunImported,
    RunInUse,
    RunnerNameInUse,
    RunnerNotFound,
    RunNotFound,
    SpecOutdated,
    TooManyAnnotations,
    UnknownToken,
    UnsupportedSchema,
)
from api.tables.access.errors import (
    KeyFixed,
    KeyNotFound,
    MemberNotFound,
    ProjectExists,
    ProjectInUse,
    ProjectNotFound,
    QuotaExceeded,
    RateExceeded,
    SignInFailed,
    StreamsBusy,
    TooManyStreams,
)
from api.tables.access.grants.charging import GrantExhausted
from api.tables.access.grants.keys import AgentKeyNotFound, TooManyAgentKeys
from api.tables.access.idempotency import IdempotencyKeyReused
from api.tables.access.identity import IdentityError, NotAllowed, NotAuthenticated, WeakKey
from api.tables.access.secrets.errors import (
    SecretInUse,
    SecretMissing,
    SecretNotForHost,
    SecretNotFound,
    SecretRejected,
    SecretsError,
    SecretUnreadable,
)
from hillclimb.protocol.spec_problems import SpecProblem

CONTENT_TYPE = "application/problem+json"
TYPE_BASE = "https://hillclimb.dev/problems/"
"""Prefix of problem types: identifiers, not addresses."""


class FieldError(BaseModel):
    """One mistake in a body or in parameters."""

    pointer: str = Field(description="JSON Pointer into the body; empty for the whole of it.")
    code: str
    message: str


class ProblemBody(BaseModel):
    """The body of every error response."""

    type: str = Field(examples=[f"{TYPE_BASE}run_not_found"])
    title: str
    status: int
    detail: str
    instance: str = Field(description="The path of the request.")
    code: str = Field(description="Stable snake_case name of the problem.")
    request_id: str
    retryable: bool = Field(description="True when the same request may succeed later.")
    errors: list[FieldError] = Field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of problem: its status, its code, its title, and whether retrying may help."""

    status: HTTPStatus
    code: str
    title: str
    retryable: bool = False


class Problem(Exception):
    """A problem that a route raises itself."""

    def __init__(self, kind: Kind, detail: str, errors: Sequence[SpecProblem] = ()) -> None:
        super().__init__(detail)
        self.kind = kind
        self.detail = detail
        self.errors = tuple(errors)


def _kind(status: HTTPStatus, code: str, title: str, *, retryable: bool = False) -> Kind:
    return Kind(status=status, code=code, title=title, retryable=retryable)


MALFORMED = _kind(HTTPStatus.BAD_REQUEST, "malformed", "The request cannot be read")
TOO_SLOW = _kind(
    HTTPStatus.REQUEST_TIMEOUT, "body_timeout", "The body did not arrive", retryable=True
)
NOT_FOUND = _kind(HTTPStatus.NOT_FOUND, "not_found", "Not found")
METHOD_NOT_ALLOWED = _kind(
    HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", "The path does not support the method"
)
TOO_LARGE = _kind(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large", "The body is too large")
INVALID = _kind(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", "The request is not valid")
INVALID_SPEC = _kind(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_spec", "The run spec is not valid")
INTERNAL = _kind(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "Internal error", retryable=True)
UNAVAILABLE = _kind(
    HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "A dependency is unavailable", retryable=True
)

KINDS: dict[type[Exception], Kind] = {
    RunNotFound: _kind(HTTPStatus.NOT_FOUND, "run_not_found", "No such run"),
    RunDeleted: _kind(HTTPStatus.GONE, "run_deleted", "The run was deleted"),
    RunInUse: _kind(HTTPStatus.CONFLICT, "run_in_use", "Something needs the run"),
    InvalidTransition: _kind(
        HTTPStatus.CONFLICT, "invalid_transition", "The run's status does not allow it"
    ),
    RunImported: _kind(HTTPStatus.CONFLICT, "run_imported", "The run was imported"),
    GuardTripNotFound: _kind(
        HTTPStatus.NOT_FOUND, "guard_trip_not_found", "The guard has no such episode"
    ),
    RequestForged: _kind(HTTPStatus.UNAUTHORIZED, "request_forged", "Not a request of Slack"),
    SlackNotSetUp: _kind(HTTPStatus.NOT_FOUND, "slack_not_set_up", "Slack is not set up"),
    LinkCodeRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "link_code_rejected", "The link code is not valid"
    ),
    LinkNotFound: _kind(HTTPStatus.NOT_FOUND, "slack_link_not_found", "No such link"),
    RateLimited: _kind(
        HTTPStatus.SERVICE_UNAVAILABLE, "slack_rate_limited", "Slack asks to wait", retryable=True
    ),
    SlackUnavailable: _kind(
        HTTPStatus.SERVICE_UNAVAILABLE, "slack_unavailable", "Slack is away", retryable=True
    ),
    SlackRefused: _kind(HTTPStatus.BAD_GATEWAY, "slack_refused", "Slack refused it"),
    NothingToResume: _kind(
        HTTPStatus.CONFLICT, "nothing_to_resume", "There is no checkpoint to resume from"
    ),
    SpecOutdated: _kind(
        HTTPStatus.CONFLICT, "spec_outdated", "The run's stored spec is no longer valid"
    ),
    CheckpointNotFound: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "checkpoint_not_found", "No such checkpoint"
    ),
    AddressRefused: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "address_refused", "The project may not use the address"
    ),
    CheckpointMisfit: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "checkpoint_misfit", "The run does not fit the checkpoint"
    ),
    DefaultsMisfit: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "defaults_misfit", "The project's defaults do not suit it"
    ),
    ModelUnsupported: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "model_unsupported", "This model cannot be trained here"
    ),
    PathNotAccepted: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "path_not_accepted", "The path was never run here"
    ),
    AcceptanceRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "acceptance_rejected", "The run proves nothing"
    ),
    ChecksMisfit: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "checks_misfit", "The service cannot make these checks"
    ),
    TooManyAnnotations: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "too_many_annotations", "Too many tags or links"
    ),
    ForkRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_fork", "The fork's spec is not valid"
    ),
    LeaseLost: _kind(
        HTTPStatus.CONFLICT, "lease_lost", "Another worker holds the lease", retryable=True
    ),
    AttemptNotFound: _kind(HTTPStatus.NOT_FOUND, "attempt_not_found", "No such attempt"),
    AttemptSuperseded: _kind(HTTPStatus.CONFLICT, "attempt_superseded", "The attempt has ended"),
    AttemptNotClaimed: _kind(
        HTTPStatus.CONFLICT,
        "attempt_not_claimed",
        "The attempt is not claimed yet",
        retryable=True,
    ),
    UnknownToken: _kind(HTTPStatus.UNAUTHORIZED, "unknown_token", "The token is not valid"),
    UnsupportedSchema: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "unsupported_schema", "The event schema is not accepted"
    ),
    RunnerNameInUse: _kind(
        HTTPStatus.CONFLICT, "runner_name_in_use", "Another runner has that name"
    ),
    RunnerNotFound: _kind(HTTPStatus.NOT_FOUND, "runner_not_found", "No such runner"),
    IdempotencyKeyReused: _kind(
        HTTPStatus.CONFLICT, "idempotency_key_reused", "The idempotency key was used before"
    ),
    CursorRejected: _kind(
        HTTPStatus.BAD_REQUEST, "cursor_rejected", "The cursor is not valid for this list"
    ),
    NotAuthenticated: _kind(HTTPStatus.UNAUTHORIZED, "not_authenticated", "No valid API key"),
    NotAllowed: _kind(HTTPStatus.FORBIDDEN, "not_allowed", "The key lacks the scope"),
    ArtifactNotFound: _kind(HTTPStatus.NOT_FOUND, "artifact_not_found", "No such artifact"),
    ArtifactRemoved: _kind(HTTPStatus.GONE, "artifact_removed", "It was removed"),
    CampaignNotFound: _kind(HTTPStatus.NOT_FOUND, "campaign_not_found", "No such campaign"),
    CampaignRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_campaign", "A cell's run is not valid"
    ),
    ImportRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_import", "It cannot be imported"
    ),
    ImportsBusy: _kind(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "imports_busy",
        "Other imports are in progress",
        retryable=True,
    ),
    ExperimentNotFound: _kind(HTTPStatus.NOT_FOUND, "experiment_not_found", "No such experiment"),
    ExperimentExists: _kind(HTTPStatus.CONFLICT, "experiment_exists", "The experiment exists"),
    ExperimentRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_experiment", "The experiment does not allow it"
    ),
    NoSuchEval: _kind(HTTPStatus.NOT_FOUND, "no_such_eval", "No such evaluation"),
    DatasetNotFound: _kind(HTTPStatus.NOT_FOUND, "dataset_not_found", "No such dataset or version"),
    TaskNotFound: _kind(HTTPStatus.NOT_FOUND, "task_not_found", "No such task"),
    ExclusionNotFound: _kind(HTTPStatus.NOT_FOUND, "exclusion_not_found", "No such exclusion"),
    SourceRefused: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "source_refused", "The file cannot be fetched"
    ),
    DatasetRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_dataset", "The tasks are not valid"
    ),
    DatasetTooLarge: _kind(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "dataset_too_large", "The file is too large"
    ),
    DatasetsBusy: _kind(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "datasets_busy",
        "Other files are in progress",
        retryable=True,
    ),
    DatasetUnusable: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "dataset_unusable", "The run cannot use the dataset"
    ),
    TableRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "table_rejected", "The table stands for no pass counts"
    ),
    IssueNotFound: _kind(HTTPStatus.NOT_FOUND, "issue_not_found", "No such issue"),
    IssueClosed: _kind(HTTPStatus.CONFLICT, "issue_closed", "The issue is closed"),
    IssueRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "invalid_issue", "The issue is not valid"
    ),
    MixedDetectors: _kind(
        HTTPStatus.CONFLICT, "mixed_detectors", "Several versions searched the rollouts"
    ),
    NoLedger: _kind(HTTPStatus.NOT_FOUND, "no_ledger", "The run's compute is not known"),
    TooManyPoints: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "too_many_points", "The series have too many points"
    ),
    NoSuchRescoring: _kind(HTTPStatus.NOT_FOUND, "no_such_rescoring", "No such rescoring"),
    NotRescorable: _kind(HTTPStatus.CONFLICT, "not_rescorable", "The run cannot be rescored"),
    RescoringBusy: _kind(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "rescoring_busy",
        "Other rollouts are being rescored",
        retryable=True,
    ),
    NoSuchProbe: _kind(HTTPStatus.NOT_FOUND, "no_such_probe", "The run has reported no probe"),
    NoSuchValidation: _kind(
        HTTPStatus.NOT_FOUND, "no_such_validation", "The run has reported no validation"
    ),
    NoEligibleHardware: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "no_eligible_hardware", "No machine can execute the run"
    ),
    PresetHasNoCloud: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "preset_has_no_cloud", "The preset has no such cloud"
    ),
    PresetNotFound: _kind(HTTPStatus.NOT_FOUND, "preset_not_found", "No such preset"),
    CloudExclusionNotFound: _kind(
        HTTPStatus.NOT_FOUND, "cloud_exclusion_not_found", "No such cloud exclusion"
    ),
    OrphanNotFound: _kind(HTTPStatus.NOT_FOUND, "orphan_not_found", "No such orphaned cluster"),
    NoBudget: _kind(HTTPStatus.CONFLICT, "no_budget", "The run has no budget"),
    WebhookNotFound: _kind(HTTPStatus.NOT_FOUND, "webhook_not_found", "No such webhook"),
    WebhookRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "webhook_rejected", "The webhook cannot be stored"
    ),
    NotDelivered: _kind(
        HTTPStatus.BAD_GATEWAY, "not_delivered", "The receiver did not accept it", retryable=True
    ),
    SecretNotFound: _kind(HTTPStatus.NOT_FOUND, "secret_not_found", "No such secret"),
    SecretMissing: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "secret_missing", "The project lacks a secret of the spec"
    ),
    SecretInUse: _kind(HTTPStatus.CONFLICT, "secret_in_use", "A run needs the secret"),
    SecretRejected: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "secret_rejected", "The value cannot be stored"
    ),
    SecretNotForHost: _kind(
        HTTPStatus.UNPROCESSABLE_ENTITY, "secret_not_for_host", "The secret may not be sent there"
    ),
    SecretUnreadable: _kind(
        HTTPStatus.SERVICE_UNAVAILABLE,
        "secret_unreadable",
        "A secret does not decrypt",
        retryable=True,
    ),
    GrantExhausted: _kind(HTTPStatus.FORBIDDEN, "grant_exhausted", "The key's grant is used up"),
    AgentKeyNotFound: _kind(HTTPStatus.NOT_FOUND, "agent_key_not_found", "No such agent key"),
    TooManyAgentKeys: _kind(
        HTTPStatus.CONFLICT, "too_many_agent_keys", "The project has too many agent keys"
    ),
    WeakKey: _kind(HTTPStatus.UNPROCESSABLE_ENTITY, "weak_key", "The key is too short"),
    KeyNotFound: _kind(HTTPStatus.NOT_FOUND, "key_not_found", "No such key"),
    KeyFixed: _kind(HTTPStatus.CONFLICT, "key_fixed", "The key cannot be changed"),
    MemberNotFound: _kind(HTTPStatus.NOT_FOUND, "member_not_found", "No such member"),
    ProjectNotFound: _kind(HTTPStatus.NOT_FOUND, "project_not_found", "No such project"),
    ProjectExists: _kind(HTTPStatus.CONFLICT, "project_exists", "The project exists"),
    ProjectInUse: _kind(HTTPStatus.CONFLICT, "project_in_use", "The project cannot be deleted yet"),
    SignInFailed: _kind(HTTPStatus.UNAUTHORIZED, "sign_in_failed", "The sign-in failed"),
    RateExceeded: _kind(
        HTTPStatus.TOO_MANY_REQUESTS, "rate_exceeded", "Too many requests", retryable=True
    ),
    TooManyStreams: _kind(
        HTTPStatus.TOO_MANY_REQUESTS, "too_many_streams", "Too many open streams", retryable=True
    ),
    StreamsBusy: _kind(
        HTTPStatus.SERVICE_UNAVAILABLE, "streams_busy", "Too many open streams", retryable=True
    ),
    QuotaExceeded: _kind(
        HTTPStatus.TOO_MANY_REQUESTS, "quota_exceeded", "A quota is used up", retryable=True
    ),
}
"""Total over the leaves of `DOMAIN_ERRORS` (a test proves it)."""

DOMAIN_ERRORS: tuple[type[Exception], ...] = (
    AcceptanceError,
    RunError,
    IdentityError,
    ArtifactError,
    EvalError,
    RegistryError,
    ClustersError,
    CampaignError,
    ImportsError,
    ExperimentError,
    SecretsError,
    WebhookError,
    NoticeError,
    IdempotencyKeyReused,
)
BY_STATUS = {
    kind.status.value: kind
    for kind in (MALFORMED, NOT_FOUND, METHOD_NOT_ALLOWED, TOO_LARGE, INVALID, INTERNAL)
}


def kind_of(error: Exception) -> Kind:
    """Return the kind of problem of a domain error; `internal` for an error without a row."""
    return next((KINDS[cls] for cls in type(error).__mro__ if cls in KINDS), INTERNAL)


def body_of(
    kind: Kind, detail: str, *, path: str, request_id: str, errors: Sequence[SpecProblem] = ()
) -> dict[str, Any]:
    """Return the problem as JSON values."""
    return {
        "type": TYPE_BASE + kind.code,
        "title": kind.title,
        "status": kind.status.value,
        "detail": detail,
        "instance": path,
        "code": kind.code,
        "request_id": request_id,
        "retryable": kind.retryable,
        "errors": [{"pointer": e.pointer, "code": e.code, "message": e.message} for e in errors],
    }


def headers_of(kind: Kind) -> dict[str, str]:
    """Return the extra headers of a problem; SDKs of several vendors obey `x-should-retry`."""
    headers = {"x-should-retry": "true" if kind.retryable else "false"}
    if kind.status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="hillclimb"'
    if kind.status in WAITING:
        headers["Retry-After"] = "5"
    return headers


def documented(*kinds: Kind) -> Mapping[int | str, dict[str, Any]]:
    """Return OpenAPI `responses` for these problems, with the headers that each has.

    Where a run may not be found, it may also have been deleted.
    """
    by_status: dict[int, list[Kind]] = {}
    deleted = (KINDS[RunDeleted],) if KINDS[RunNotFound] in kinds else ()
    for kind in (*kinds, *deleted):
        by_status.setdefault(kind.status.value, []).append(kind)
    return {
        status: {
            "description": " · ".join(f"`{kind.code}`: {kind.title}" for kind in group),
            "headers": {
                name: {"$ref": f"#/components/headers/{name}"}
                for name in headers_at(group[0].status)
            },
            "content": {CONTENT_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemBody"}}},
        }
        for status, group in by_status.items()
    }
