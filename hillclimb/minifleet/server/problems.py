"""Error responses with Fleet's texts: the official client classifies by status and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse

Model = TypeVar("Model", bound=BaseModel)


class FleetProblem(Exception):
    """An error response with `status` and the body `{"detail": detail}`."""

    def __init__(self, status: int, detail: JsonValue) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail


def structured_problem(
    status: int, error_type: str, message: str, **more: JsonValue
) -> FleetProblem:
    """Return a problem whose detail is an object."""
    return FleetProblem(status, {"error_type": error_type, "message": message, **more})


def not_found(noun: str, name: str) -> FleetProblem:
    """Return a 404 problem."""
    return FleetProblem(404, f"{noun} '{name[:200]}' not found")


def response_to(problem: FleetProblem) -> JSONResponse:
    """Return the HTTP response of a problem."""
    return JSONResponse({"detail": problem.detail}, problem.status)


async def answer_problem(request: Request, error: Exception) -> JSONResponse:
    """Starlette's handler of a `FleetProblem` that a route raises."""
    if not isinstance(error, FleetProblem):
        raise error
    return response_to(error)


async def json_object(request: Request) -> Mapping[str, JsonValue]:
    """Return the request's body as a JSON object; an empty body is an empty object.

    Raises:
        FleetProblem: 422, the body is no JSON object.
    """
    body = await request.body()
    if not body:
        return {}
    try:
        content = await request.json()
    except ValueError as error:
        raise FleetProblem(422, f"the body is not JSON: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise FleetProblem(422, "the body is not a JSON object")
    return content


async def parsed(request: Request, model: type[Model]) -> Model:
    """Return the request's body as a model.

    Raises:
        FleetProblem: 422, with every invalid field.
    """
    body = await json_object(request)
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise FleetProblem(422, _fields(error)) from error


def _fields(error: ValidationError) -> list[JsonValue]:
    return [
        {"loc": ["body", *each["loc"]], "msg": each["msg"], "type": each["type"]}
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
