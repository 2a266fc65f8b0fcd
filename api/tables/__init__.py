"""All tables of the service, one module per noun; importing this package registers them."""

from api.tables.base import Base
from api.tables.datasets import Dataset, DatasetExclusion, DatasetVersion
from api.tables.notices import (
    OutboxMessage,
    SlackLink,
    SlackLinkCode,
    SlackRequest,
    SlackThread,
    Webhook,
)
from api.tables.projects import (
    ApiKey,
    AuditRecord,
    EndedSession,
    Person,
    Project,
    ProjectDefaultsRecord,
    ProjectMember,
    ProjectQuota,
    ProjectSecret,
    RunGrant,
    SessionCode,
)
from api.tables.service import Acceptance, SchemaRevision, Sweep
from api.tables.studies.campaigns import Campaign, CampaignCell, CampaignMember
from api.tables.studies.experiments import Experiment, ExperimentRun
from api.tables.studies.issues import Issue
from api.tables.training.clusters import (
    BudgetExtension,
    CloudExclusion,
    Cluster,
    Deployment,
    LaunchTry,
    OrphanedCluster,
    PriceQuote,
    ProjectLimits,
)
from api.tables.training.deleted import DeletedRun
from api.tables.training.results import (
    Checkpoint,
    ComputeRecord,
    Eval,
    Metric,
    OutcomeRecord,
    PatternSearch,
    RescoredOutcome,
    StepSignalRecord,
)
from api.tables.training.runs import Attempt, GuardTrip, IdempotencyKey, Run, RunEvent, Runner

__all__ = [
    "Base",
    "Project",
    "ApiKey",
    "AuditRecord",
    "ProjectMember",
    "Person",
    "ProjectQuota",
    "ProjectSecret",
    "ProjectDefaultsRecord",
    "RunGrant",
    "Run",
    "DeletedRun",
    "Attempt",
    "RunEvent",
    "GuardTrip",
    "IdempotencyKey",
    "Metric",
    "OutcomeRecord",
    "RescoredOutcome",
    "PatternSearch",
    "StepSignalRecord",
    "Eval",
    "Checkpoint",
    "ComputeRecord",
    "Runner",
    "OutboxMessage",
    "SlackThread",
    "Webhook",
    "SlackLink",
    "SlackLinkCode",
    "SlackRequest",
    "SessionCode",
    "EndedSession",
    "Dataset",
    "DatasetVersion",
    "DatasetExclusion",
    "Deployment",
    "Cluster",
    "LaunchTry",
    "CloudExclusion",
    "PriceQuote",
    "ProjectLimits",
    "BudgetExtension",
    "OrphanedCluster",
    "Campaign",
    "CampaignCell",
    "Experiment",
    "ExperimentRun",
    "CampaignMember",
    "Issue",
    "Acceptance",
    "SchemaRevision",
    "Sweep",
]
