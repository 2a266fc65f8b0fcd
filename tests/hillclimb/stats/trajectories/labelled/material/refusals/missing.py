"""Refusals because the thing named does not exist.

Forms: HTTP, GitHub, Microsoft Graph, HubSpot, Jira, Slack, Stripe, Google, gRPC, Prisma, Rails,
Django, SQL, file systems, MCP and Fleet.
"""

from __future__ import annotations

from tests.hillclimb.stats.trajectories.labelled.material.refusals.wording import (
    body,
    formed,
    prose,
)

MISSING = (
    formed("HTTP 404 Not Found"),
    formed("404: no $noun with ID $value"),
    formed("Error: $noun $value does not exist"),
    formed("Error: unknown $noun ID $value"),
    formed("MCP error -32002: Resource not found"),
    formed("McpError: there is no $noun $value"),
    formed("NotFoundError: $noun $value"),
    formed("DoesNotExist: $noun matching query does not exist."),
    formed("ActiveRecord::RecordNotFound: Couldn't find $noun with 'id'=$value"),
    formed("NOT_FOUND: Requested entity was not found."),
    formed("FileNotFoundError: [Errno 2] No such file or directory: '/srv/data/$value'"),
    formed('ERROR:  relation "$noun" does not exist'),
    formed("Error executing tool $tool: nothing is stored under $value, no such $noun"),
    formed("sqlite3.OperationalError: no such table: $noun"),
    body(message="Not Found", status="404"),
    body(error={"code": "ErrorItemNotFound", "message": "The object was not found in the store."}),
    body(status="error", message="resource not found", category="OBJECT_NOT_FOUND"),
    body(errorMessages=["$noun does not exist"], errors={}, status=404),
    body(ok=False, error="${noun}_not_found"),
    body(error={"type": "invalid_request_error", "message": "No such $noun: '$value'"}, status=404),
    body(
        error={
            "code": "P2025",
            "message": "An operation failed because it depends on one or more records that were"
            " required but not found.",
        }
    ),
    body(error="not found"),
    body(error="no $noun here goes by $value"),
    body(detail="Not found.", status_code=404),
    body(success=False, message="$noun $value isn't in this workspace: it does not exist"),
    body(error={"error_type": "unknown_id", "message": "unknown ID: $value"}),
    body(status=404, message="There is no such $noun."),
    prose("We could not find a $noun with the number $value."),
    prose("$value? No such $noun."),
    prose("There is no $noun by that name."),
    prose("No record of $noun $value exists any more."),
)
