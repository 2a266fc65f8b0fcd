"""The two manifests of the Slack app: the same app, with addresses and without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from api.http.routes.slack import requests

FOLDER = Path(__file__).parents[2] / "docs/slack"


def read(name: str) -> dict[str, Any]:
    return dict(yaml.safe_load((FOLDER / name).read_text()))


def without_addresses(value: Any) -> Any:
    if isinstance(value, dict):
        kept = {key: each for key, each in value.items() if key not in ("url", "request_url")}
        return {key: without_addresses(each) for key, each in kept.items()}
    return [without_addresses(each) for each in value] if isinstance(value, list) else value


def addresses(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {each for key, each in value.items() if key in ("url", "request_url")}
        return own.union(*(addresses(each) for each in value.values()))
    return set().union(*map(addresses, value)) if isinstance(value, list) else set()


def test_the_manifests_differ_in_addresses_and_the_mode_alone() -> None:
    events, socket = read("manifest.yaml"), read("manifest-socket-mode.yaml")
    assert events["settings"].pop("socket_mode_enabled") is False
    assert socket["settings"].pop("socket_mode_enabled") is True
    assert without_addresses(events) == socket


def test_the_addresses_are_those_of_the_routes() -> None:
    paths = {
        each.removeprefix("https://hillclimb.example.com")
        for each in addresses(read("manifest.yaml"))
    }
    assert paths == {route.path for route in requests.router.routes}  # type: ignore[attr-defined]
