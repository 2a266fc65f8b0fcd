"""The permissions of all routes: one row per route of the application, and no route without one.

`Gate` refuses a route that has no row; a test compares the rows with the routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from api.tables.access.roles import Scope


class Access(Enum):
    """A kind of access: what a request needs to reach a route."""

    OPEN = auto()
    """Nothing: health, schemas, sign-in, static files; or a token in the body."""
    PAGE = auto()
    """A browser's session that may read; without one the page leads to the sign-in form."""
    FORM = auto()
    """A form of a page, by a session that may change runs; without one as `PAGE`."""
    ADMIN_FORM = auto()
    """A form of a page, by a session with the scope `admin`; without one as `PAGE`."""
    ATTEMPT = auto()
    """The token of an attempt."""
    RUNNER = auto()
    """A runner's key."""
    READ = auto()
    """The role viewer, or the scope `runs:read`."""
    WRITE = auto()
    """The role member, or the scope `runs:write`."""
    ADMIN = auto()
    """The role admin, or the scope `admin`."""
    OPERATOR = auto()
    """The scope `operator`."""


SCOPE_OF: Mapping[Access, Scope] = {
    Access.PAGE: Scope.RUNS_READ,
    Access.FORM: Scope.RUNS_WRITE,
    Access.ADMIN_FORM: Scope.ADMIN,
    Access.RUNNER: Scope.RUNNER,
    Access.READ: Scope.RUNS_READ,
    Access.WRITE: Scope.RUNS_WRITE,
    Access.ADMIN: Scope.ADMIN,
    Access.OPERATOR: Scope.OPERATOR,
}
"""The scope that a principal needs; the other kinds of access have no principal."""
FORMS = frozenset({Access.FORM, Access.ADMIN_FORM})
PAGES = FORMS | {Access.PAGE}
"""Who has no valid session is led to the sign-in form."""
CHANGES = FORMS | {Access.WRITE, Access.ADMIN, Access.OPERATOR}
"""Requests with these kinds of access that do not read are recorded in the audit log."""

OPEN, PAGE, ATTEMPT, RUNNER = Access.OPEN, Access.PAGE, Access.ATTEMPT, Access.RUNNER
FORM, ADMIN_FORM = Access.FORM, Access.ADMIN_FORM
READ, WRITE, ADMIN, OPERATOR = Access.READ, Access.WRITE, Access.ADMIN, Access.OPERATOR

PERMISSIONS: Mapping[str, Access] = {
    "GET /": PAGE,
    "GET /admin": PAGE,
    "GET /admin/audit": PAGE,
    "GET /admin/keys": PAGE,
    "POST /admin/keys": ADMIN_FORM,
    "POST /admin/keys/{key_id}/revoke": ADMIN_FORM,
    "POST /admin/keys/{key_id}/rotate": ADMIN_FORM,
    "GET /admin/members": PAGE,
    "POST /admin/members": ADMIN_FORM,
    "POST /admin/members/remove": ADMIN_FORM,
    "GET /admin/project": PAGE,
    "POST /admin/project/defaults": ADMIN_FORM,
    "POST /admin/project/limits": ADMIN_FORM,
    "POST /admin/project/quotas": ADMIN_FORM,
    "GET /admin/secrets": PAGE,
    "POST /admin/secrets": ADMIN_FORM,
    "POST /admin/secrets/delete": ADMIN_FORM,
    "GET /campaigns": PAGE,
    "GET /campaigns/{campaign_id}": PAGE,
    "GET /clusters": PAGE,
    "GET /compare": PAGE,
    "GET /dashboard/clusters": READ,
    "GET /dashboard/runs": READ,
    "GET /dashboard/runs/{run_id}/actions": READ,
    "GET /dashboard/runs/{run_id}/banner": READ,
    "GET /dashboard/runs/{run_id}/machines": READ,
    "GET /dashboard/runs/{run_id}/tokens/{rollout_id:path}": READ,
    "GET /dashboard/verdicts": READ,
    "GET /datasets": PAGE,
    "GET /datasets/{name}": PAGE,
    "GET /datasets/{name}/versions/{number}": PAGE,
    "GET /datasets/{name}/versions/{number}/diff/{base}": PAGE,
    "GET /docs": OPEN,
    "GET /docs/{page:path}.md": OPEN,
    "GET /experiments": PAGE,
    "GET /experiments/changelog": PAGE,
    "GET /experiments/{key}": PAGE,
    "GET /issues": PAGE,
    "GET /llms.txt": OPEN,
    "GET /login": OPEN,
    "POST /login": OPEN,
    "GET /login/oidc": OPEN,
    "POST /login/oidc/accept": OPEN,
    "GET /login/oidc/callback": OPEN,
    "POST /logout": OPEN,
    "GET /metrics": OPEN,
    "GET /openapi.json": OPEN,
    "GET /runs/{run_id}": PAGE,
    "POST /runs/{run_id}/actions/{action}": FORM,
    "GET /runs/{run_id}/attempts": PAGE,
    "GET /runs/{run_id}/checkpoints": PAGE,
    "GET /runs/{run_id}/config": PAGE,
    "GET /runs/{run_id}/log": PAGE,
    "GET /runs/{run_id}/metrics": PAGE,
    "GET /runs/{run_id}/rollouts": PAGE,
    "GET /runs/{run_id}/rollouts/{rollout_id:path}": PAGE,
    "GET /runs/{run_id}/signal": PAGE,
    "GET /runs/{run_id}/tokens/{rollout_id:path}": PAGE,
    "GET /static/{name}": OPEN,
    "GET /submit": PAGE,
    "POST /submit": FORM,
    "POST /submit/plan": PAGE,
    "GET /v1/agent-keys": ADMIN,
    "POST /v1/agent-keys": ADMIN,
    "GET /v1/agent-keys/self": READ,
    "PATCH /v1/agent-keys/{key_id}": ADMIN,
    "DELETE /v1/agent-keys/{key_id}": ADMIN,
    "POST /v1/attempts/claim": OPEN,
    "POST /v1/attempts/end": ATTEMPT,
    "POST /v1/attempts/heartbeat": ATTEMPT,
    "GET /v1/audit": ADMIN,
    "GET /v1/campaigns": READ,
    "POST /v1/campaigns": WRITE,
    "GET /v1/campaigns/{campaign_id}": READ,
    "POST /v1/campaigns/{campaign_id}/cancel": WRITE,
    "POST /v1/campaigns/{campaign_id}/retry": WRITE,
    "GET /v1/campaigns/{campaign_id}/table": READ,
    "GET /v1/clouds/exclusions": READ,
    "DELETE /v1/clouds/exclusions/{exclusion_id}": OPERATOR,
    "GET /v1/clouds/orphans": OPERATOR,
    "POST /v1/clouds/orphans/{name}/terminate": OPERATOR,
    "GET /v1/clusters": READ,
    "GET /v1/compare": READ,
    "GET /v1/datasets": READ,
    "GET /v1/datasets/{name}": READ,
    "GET /v1/datasets/{name}/exclusions": READ,
    "POST /v1/datasets/{name}/exclusions": WRITE,
    "DELETE /v1/datasets/{name}/exclusions/{exclusion_id}": WRITE,
    "GET /v1/datasets/{name}/versions": READ,
    "POST /v1/datasets/{name}/versions": WRITE,
    "GET /v1/datasets/{name}/versions/{number}": READ,
    "PATCH /v1/datasets/{name}/versions/{number}": WRITE,
    "GET /v1/datasets/{name}/versions/{number}/diff": READ,
    "GET /v1/datasets/{name}/versions/{number}/files/{file}": READ,
    "POST /v1/datasets/{name}/versions/{number}/lint": READ,
    "GET /v1/datasets/{name}/versions/{number}/tasks": READ,
    "GET /v1/datasets/{name}/versions/{number}/tasks/{key:path}": READ,
    "GET /v1/experiments": READ,
    "POST /v1/experiments": WRITE,
    "GET /v1/experiments/changelog": READ,
    "GET /v1/experiments/{key}": READ,
    "PATCH /v1/experiments/{key}": WRITE,
    "GET /v1/experiments/{key}/figures": READ,
    "GET /v1/experiments/{key}/report": READ,
    "GET /v1/experiments/{key}/results": READ,
    "POST /v1/experiments/{key}/runs": WRITE,
    "DELETE /v1/experiments/{key}/runs/{run}": WRITE,
    "POST /v1/experiments/{key}/sweep": WRITE,
    "GET /v1/health": OPEN,
    "GET /v1/health/ready": OPEN,
    "POST /v1/imports/capsule": WRITE,
    "POST /v1/imports/skyrl": WRITE,
    "POST /v1/imports/wandb": WRITE,
    "POST /v1/ingest": ATTEMPT,
    "GET /v1/issues": READ,
    "POST /v1/issues": WRITE,
    "GET /v1/issues/ledger": READ,
    "GET /v1/issues/{issue_id}": READ,
    "PATCH /v1/issues/{issue_id}": WRITE,
    "POST /v1/issues/{issue_id}/close": WRITE,
    "GET /v1/keys": ADMIN,
    "POST /v1/keys": ADMIN,
    "DELETE /v1/keys/{key_id}": ADMIN,
    "POST /v1/keys/{key_id}/rotate": ADMIN,
    "GET /v1/limits": READ,
    "PUT /v1/limits": ADMIN,
    "GET /v1/members": READ,
    "PUT /v1/members/{email}": ADMIN,
    "DELETE /v1/members/{email}": ADMIN,
    "GET /v1/presets": READ,
    "GET /v1/presets/{name}": READ,
    "GET /v1/project/defaults": READ,
    "PUT /v1/project/defaults": ADMIN,
    "GET /v1/projects": READ,
    "POST /v1/projects": OPERATOR,
    "DELETE /v1/projects/{project_id}": OPERATOR,
    "PUT /v1/projects/{project_id}/quotas": OPERATOR,
    "GET /v1/quotas": READ,
    "POST /v1/runners": RUNNER,
    "POST /v1/runners/{runner_id}/attempts/{attempt_id}/end": RUNNER,
    "POST /v1/runners/{runner_id}/claim": RUNNER,
    "POST /v1/runners/{runner_id}/deleted-runs": RUNNER,
    "POST /v1/runners/{runner_id}/heartbeat": RUNNER,
    "GET /v1/runs": READ,
    "POST /v1/runs": WRITE,
    "POST /v1/runs/plan": READ,
    "GET /v1/runs/{run_id}": READ,
    "PATCH /v1/runs/{run_id}": WRITE,
    "DELETE /v1/runs/{run_id}": WRITE,
    "GET /v1/runs/{run_id}/budget": READ,
    "POST /v1/runs/{run_id}/budget": WRITE,
    "POST /v1/runs/{run_id}/cancel": WRITE,
    "GET /v1/runs/{run_id}/capsule": READ,
    "GET /v1/runs/{run_id}/checkpoints": READ,
    "GET /v1/runs/{run_id}/checkpoints/{step}": READ,
    "GET /v1/runs/{run_id}/checkpoints/{step}/files/{path:path}": READ,
    "GET /v1/runs/{run_id}/clusters": READ,
    "GET /v1/runs/{run_id}/compute": READ,
    "GET /v1/runs/{run_id}/evals": READ,
    "GET /v1/runs/{run_id}/evals/report": READ,
    "GET /v1/runs/{run_id}/events": READ,
    "GET /v1/runs/{run_id}/events/stream": READ,
    "GET /v1/runs/{run_id}/exports/rollouts": READ,
    "GET /v1/runs/{run_id}/exports/skyrl": READ,
    "GET /v1/runs/{run_id}/exports/tracking": READ,
    "POST /v1/runs/{run_id}/fork": WRITE,
    "GET /v1/runs/{run_id}/guards": READ,
    "POST /v1/runs/{run_id}/guards/{guard}/acknowledge": WRITE,
    "GET /v1/runs/{run_id}/logs": READ,
    "GET /v1/runs/{run_id}/messages": READ,
    "GET /v1/runs/{run_id}/metrics": READ,
    "GET /v1/runs/{run_id}/patterns": READ,
    "GET /v1/runs/{run_id}/patterns/searches": READ,
    "POST /v1/runs/{run_id}/patterns/searches": WRITE,
    "POST /v1/runs/{run_id}/pause": WRITE,
    "GET /v1/runs/{run_id}/probe": READ,
    "GET /v1/runs/{run_id}/prompts": READ,
    "GET /v1/runs/{run_id}/rescorings": READ,
    "POST /v1/runs/{run_id}/rescorings": WRITE,
    "POST /v1/runs/{run_id}/resume": WRITE,
    "GET /v1/runs/{run_id}/signal": READ,
    "GET /v1/runs/{run_id}/timeline": READ,
    "GET /v1/runs/{run_id}/tokens/{rollout_id:path}": READ,
    "GET /v1/runs/{run_id}/trajectories": READ,
    "GET /v1/runs/{run_id}/trajectories/{rollout_id:path}": READ,
    "GET /v1/runs/{run_id}/validation": READ,
    "GET /v1/schemas/run-spec": OPEN,
    "GET /v1/secrets": READ,
    "POST /v1/secrets/reencrypt": ADMIN,
    "PUT /v1/secrets/{name}": ADMIN,
    "DELETE /v1/secrets/{name}": ADMIN,
    "POST /v1/session-codes": READ,
    "POST /v1/slack/commands": OPEN,
    "POST /v1/slack/events": OPEN,
    "POST /v1/slack/interactions": OPEN,
    "POST /v1/slack/link-codes": READ,
    "GET /v1/slack/links": READ,
    "DELETE /v1/slack/links/{team_id}/{user_id}": WRITE,
    "POST /v1/verdicts/tables": READ,
    "GET /v1/webhooks": READ,
    "POST /v1/webhooks": ADMIN,
    "GET /v1/webhooks/{webhook_id}": READ,
    "PATCH /v1/webhooks/{webhook_id}": ADMIN,
    "DELETE /v1/webhooks/{webhook_id}": ADMIN,
    "GET /v1/webhooks/{webhook_id}/deliveries": READ,
    "POST /v1/webhooks/{webhook_id}/rotate": ADMIN,
    "POST /v1/webhooks/{webhook_id}/test": ADMIN,
    "GET /v1/whoami": READ,
}
