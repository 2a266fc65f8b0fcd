"""Refusals that are none of the three: the state of a thing, load, faults, conflicts."""

from __future__ import annotations

from tests.hillclimb.stats.trajectories.labelled.material.refusals.wording import (
    body,
    formed,
    prose,
)

STATE = (
    formed("Error: $noun $value is closed"),
    formed("HTTP 409 Conflict: the $noun was changed by somebody else meanwhile"),
    formed("ConflictError: $noun is already taken"),
    formed("FAILED_PRECONDITION: $noun is archived"),
    body(error={"code": "conflict", "message": "the $noun is sold out"}),
    body(ok=False, error="already_archived"),
    body(success=False, message="This $noun has been cancelled before"),
    prose("The $noun is locked while a payment is under way."),
    prose("There is an open hold: pay it or let it go first."),
)
FAULTS = (
    formed("HTTP 500 Internal Server Error"),
    formed("HTTP 429 Too Many Requests: retry after 30 s"),
    formed("Error: call_tool($tool) failed after 8 attempts: timed out"),
    formed("MCP error -32603: Internal error"),
    formed("MCP error -32001: Request timed out"),
    formed("503 Service Unavailable"),
    formed("Error: the tool did not respond within 60 s"),
    formed("ConnectionError: connection reset by peer"),
    formed("ERROR:  deadlock detected"),
    body(error={"code": 502, "message": "Bad Gateway"}),
    body(error="rate limit exceeded, slow down"),
    body(detail={"error_type": "timeout", "message": "$tool took too long"}, status=504),
    body(status="failed", message="worker ran out of memory"),
    prose("Something went wrong on our side. We have been notified."),
)
OTHERS = STATE + FAULTS
