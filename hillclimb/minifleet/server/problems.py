"""Refusals in Fleet's words: the official client tells them apart by status and text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from pydantic import BaseModel, JsonValue, ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse

Model = TypeVar("Model", bound=BaseModel)


class Problem(Exception):
    """A request is answered with `status` and the body `{"detail": detail}`."""

    def __init__(self, status: int, detail: JsonValue) -> None:
        super().__init__(f"{status}: {detail}")
        self.status = status
        self.detail = detail


def refused(status: int, error_type: str, message: str, **more: JsonValue) -> Problem:
    """Return a problem whose detail is structured."""
    return Problem(status, {"error_type": error_type, "message": message, **more})


def not_found(noun: str, name: str) -> Problem:
    """Return the problem of something that is not there."""
    return Problem(404, f"{noun} '{name[:200]}' not found")


def response_to(problem: Problem) -> JSONResponse:
    """Return a problem as it goes over the wire."""
    return JSONResponse({"detail": problem.detail}, problem.status)


async def answer_problem(request: Request, error: Exception) -> JSONResponse:
    """Handle a `Problem` raised by a route; Starlette calls this."""
    if not isinstance(error, Problem):
        raise error
    return response_to(error)


async def json_object(request: Request) -> Mapping[str, JsonValue]:
    """Return the request's body as a JSON object; no body is an empty one.

    Raises:
        Problem: 422, it is something else.
    """
    body = await request.body()
    if not body:
        return {}
    try:
        found = await request.json()
    except ValueError as error:
        raise Problem(422, f"the body is not JSON: {error}") from error
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise Problem(422, "the body is not a JSON object")
    return found


async def parsed(request: Request, model: type[Model]) -> Model:
    """Return the request's body as a model.

    Raises:
        Problem: 422, with every field that is wrong.
    """
    body = await json_object(request)
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise Problem(422, _fields(error)) from error


def _fields(error: ValidationError) -> list[JsonValue]:
    return [
        {"loc": ["body", *each["loc"]], "msg": each["msg"], "type": each["type"]}
        for each in error.errors(include_url=False, include_context=False, include_input=False)
    ]
