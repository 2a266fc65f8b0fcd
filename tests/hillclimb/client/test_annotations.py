"""Every public method of the client returns a payload, or has a reason not to."""

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from hillclimb.client.client import Client
from hillclimb.client.resources.datasets import Datasets
from hillclimb.client.resources.imports import Imports
from hillclimb.protocol.payloads.base import Payload

EXCEPTIONS: dict[str, object] = {
    "close": type(None),
    "session_url": str,  # a link for a browser
    "find_run": str,  # an id
    "checkpoint_file": Iterator[bytes],
    "capsule": Iterator[bytes],
    "rollouts": Iterator[bytes],
    "skyrl_dump": Iterator[bytes],
    "tracking_files": Iterator[bytes],
    "file": Iterator[bytes],
}


IMPORTS = Imports.__module__
"""Its `capsule` returns the run of one."""


def public_methods() -> list[Callable[..., Any]]:
    return [
        method
        for owner in (Client, Datasets, Imports)
        for name, method in inspect.getmembers(owner, inspect.isfunction)
        if not name.startswith("_")
    ]


def is_payload(annotation: object) -> bool:
    if get_origin(annotation) is Iterator:
        (annotation,) = get_args(annotation)
    return isinstance(annotation, type) and issubclass(annotation, Payload)


@pytest.mark.parametrize("method", public_methods(), ids=lambda method: method.__qualname__)
def test_a_method_returns_a_payload(method: Callable[..., Any]) -> None:
    annotation = get_type_hints(method)["return"]
    expected = EXCEPTIONS.get(method.__name__) if method.__module__ != IMPORTS else None
    assert annotation == expected if expected is not None else is_payload(annotation)


def test_payloads_are_frozen_and_ignore_what_a_newer_service_adds() -> None:
    pending, classes = [Payload], set[type[Payload]]()
    while pending:
        children = pending.pop().__subclasses__()
        pending += children
        classes.update(children)
    ours = {each for each in classes if each.__module__.startswith("hillclimb.")}
    assert len(ours) > 60
    for payload in ours:
        assert payload.model_config["frozen"], payload
        assert payload.model_config["extra"] != "forbid", payload
        schema = json.dumps(payload.model_json_schema())
        assert '"additionalProperties": false' not in schema, f"{payload} refuses nested fields"
