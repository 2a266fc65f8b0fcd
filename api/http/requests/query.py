"""Refuses query parameters that a route does not read: a misspelt filter filters nothing."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from fastapi import Request
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from pydantic import BaseModel

from api.http.problems import INVALID, Problem
from hillclimb.protocol.spec_problems import SpecProblem


async def refuse_unknown_query(request: Request) -> None:
    """Refuse a query parameter that the route does not have; pages ignore them.

    A coroutine, as it precedes every route: a plain function waits for a free thread.

    Raises:
        Problem: 422 with the parameters and what may have been meant.
    """
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute):
        return
    if not route.path.startswith("/v1/"):
        return
    known = list(_parameters(route.dependant))
    unknown = [name for name in dict.fromkeys(request.query_params) if name not in known]
    if unknown:
        mistakes = [_mistake(name, known) for name in unknown]
        raise Problem(INVALID, "; ".join(each.message for each in mistakes), mistakes)


def _parameters(dependant: Dependant) -> Iterator[str]:
    """Yield the names of a route's query parameters, those of its dependencies included."""
    for field in dependant.query_params:
        model = field.field_info.annotation
        if isinstance(model, type) and issubclass(model, BaseModel):
            yield from (each.alias or name for name, each in model.model_fields.items())
        else:
            yield field.alias
    for inner in dependant.dependencies:
        yield from _parameters(inner)


def _mistake(name: str, known: list[str]) -> SpecProblem:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"there are {', '.join(known) or 'none'}"
    message = f"query {name:.60}: no parameter has this name; {hint}"
    return SpecProblem(pointer=f"/{name:.60}", code="unknown_parameter", message=message)
