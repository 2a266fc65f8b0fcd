"""Refusals for lack of permission or authentication.

Forms: HTTP, GitHub, Microsoft Graph, HubSpot, Jira, Reddit, Ticketmaster's gateway, Slack, Google,
gRPC, PostgreSQL, file systems, MCP and Fleet.
"""

from __future__ import annotations

from tests.hillclimb.stats.trajectories.labelled.material.refusals.wording import (
    body,
    formed,
    prose,
)

PERMISSION = (
    formed("HTTP 403 Forbidden"),
    formed("401 Unauthorized: Bad credentials"),
    formed("Error: 403 - You shall not pass: role 'viewer' cannot call $tool"),
    formed("MCP error -32001: Unauthorized"),
    formed("McpError: the session's token does not allow $tool"),
    formed("PermissionError: [Errno 13] Permission denied: '/srv/data/$noun'"),
    formed("PERMISSION_DENIED: The caller does not have permission"),
    formed("UNAUTHENTICATED: Request had no valid credentials"),
    formed("ERROR:  permission denied for table $noun"),
    formed("Error: access to $noun is denied"),
    formed("Error executing tool $tool: insufficient scope, needs $noun:write"),
    formed("AuthenticationError: session has expired, sign in again"),
    body(message="Bad credentials", status="401"),
    body(message="Resource not accessible by integration", status="403"),
    body(message="Must have admin rights to Repository.", status=403),
    body(error={"code": "ErrorAccessDenied", "message": "Access is denied. Check credentials."}),
    body(error={"code": "InvalidAuthenticationToken", "message": "Access token has expired."}),
    body(
        status="error",
        message="This oauth-token does not have proper permissions! (requires all of [deals])",
        category="MISSING_SCOPES",
    ),
    body(errorMessages=["You do not have permission to edit this $noun."], errors={}, status=403),
    body(reason="private", message="Forbidden", error=403),
    body(
        fault={
            "faultstring": "Invalid ApiKey",
            "detail": {"errorcode": "oauth.v2.InvalidApiKey"},
        }
    ),
    body(ok=False, error="not_authed"),
    body(ok=False, error="missing_scope", needed="$noun:write", provided="$noun:read"),
    body(detail={"error_type": "permission_denied", "message": "team has no access"}, status=403),
    body(error="You are not allowed to do that"),
    body(error="this account is read-only"),
    body(success=False, message="Login required", code=401),
    body(error={"code": 403, "message": "The user has not been granted $tool", "errors": []}),
    prose("You're not allowed to change somebody else's $noun."),
    prose("Only owners of the workspace may do this; ask one of them."),
    prose("Please log in to do that."),
    prose("Your role does not let you use $tool."),
)
