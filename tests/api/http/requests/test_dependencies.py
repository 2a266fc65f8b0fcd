"""No request waits for a thread only to learn who asks: dependencies of routes are asynchronous."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from fastapi import FastAPI
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute, iter_route_contexts


def dependencies(dependant: Dependant) -> Iterator[Dependant]:
    for each in dependant.dependencies:
        yield each
        yield from dependencies(each)


def test_dependencies_need_no_thread(app: FastAPI) -> None:
    contexts = iter_route_contexts(app.routes)
    routes = [each.route for each in contexts if isinstance(each.route, APIRoute)]
    assert len(routes) > 100
    calls = {each.call for route in routes for each in dependencies(route.dependant)}
    synchronous = {
        each
        for each in calls
        if not inspect.iscoroutinefunction(each)
        and not inspect.iscoroutinefunction(type(each).__call__)
        and not inspect.isclass(each)
    }
    assert synchronous == set()
