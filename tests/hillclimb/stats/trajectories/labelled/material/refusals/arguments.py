"""Refusals because of arguments.

Forms: MCP's servers (low-level, FastMCP, TypeScript), pydantic, FastAPI, Django, GitHub, Google,
HubSpot, Jira, Stripe, Microsoft Graph, zod, protobuf, command lines, OpenEnv and Fleet.
"""

from __future__ import annotations

from tests.hillclimb.stats.trajectories.labelled.material.refusals.wording import (
    body,
    formed,
    prose,
)

ARGUMENTS = (
    formed("MCP error -32602: Invalid params: $argument must be a string"),
    formed("McpError: Invalid arguments for tool $tool: $argument: Expected number, got string"),
    formed("Input validation error: '$argument' is a required property"),
    formed("Input validation error: 'three' is not of type 'integer'"),
    formed(
        "Error executing tool $tool: 1 validation error for ${tool}Arguments\n$argument\n"
        "  Field required [type=missing, input_value={}, input_type=dict]\n"
        "    For further information visit https://errors.pydantic.dev/2.11/v/missing"
    ),
    formed("TypeError: $tool() got an unexpected keyword argument '$argument'"),
    formed("TypeError: $tool() missing 1 required positional argument: '$argument'"),
    formed("ValueError: invalid literal for int() with base 10: 'three'"),
    formed("error: the following arguments are required: --$argument"),
    formed("Error: $argument: Input should be greater than or equal to 1"),
    formed("HTTP 400 Bad Request: parameter '$argument' is malformed"),
    formed("400 Bad Request\n\nQuery parameter $argument: expected one of [open, closed, all]"),
    formed('ERROR:  invalid input syntax for type integer: "three"'),
    formed("INVALID_ARGUMENT: $argument: value out of range [1, 100]"),
    formed("ToolError: bad value for $argument: 0 is less than the minimum of 1"),
    body(
        detail=[{"type": "missing", "loc": ["body", "$argument"], "msg": "Field required"}],
        status=422,
    ),
    body(
        error={
            "code": 400,
            "message": "Invalid value at '$argument' (TYPE_INT32), \"three\"",
            "status": "INVALID_ARGUMENT",
        }
    ),
    body(
        message="Validation Failed",
        errors=[{"resource": "Issue", "field": "$argument", "code": "missing_field"}],
        status="422",
    ),
    body(
        status="error",
        message="Property values were not valid: $argument",
        category="VALIDATION_ERROR",
    ),
    body(
        error={"type": "invalid_request_error", "param": "$argument", "code": "parameter_missing"}
    ),
    body(error={"code": "ErrorInvalidIdMalformed", "message": "Id is malformed."}),
    body(errorMessages=[], errors={"$argument": "'$argument' must be a whole number"}, status=400),
    body(
        error=[
            {
                "code": "invalid_type",
                "expected": "number",
                "received": "string",
                "path": ["$argument"],
                "message": "Expected number, received string",
            }
        ]
    ),
    body(ok=False, error="invalid_arguments", response_metadata={"messages": ["$argument: bad"]}),
    body(success=False, error={"error_type": "invalid_args", "message": "$argument is too long"}),
    body(error="You need to pass $argument"),
    body(error="schema mismatch: additional properties are not allowed ('$argument')"),
    prose("$argument may not be left out."),
    prose("$argument is none of the fields of $tool."),
    prose("We cannot read the date: write it as YYYY-MM-DD."),
    prose("Give $argument as a number between 1 and 100."),
    prose("$argument: Input should be a valid integer, unable to parse string as an integer"),
)
