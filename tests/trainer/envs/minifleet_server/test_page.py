"""The page about the server names what the server has."""

from __future__ import annotations

import re
from pathlib import Path

from hillclimb.minifleet.server.app import create_app
from hillclimb.minifleet.server.faults.plan import OPERATIONS, FaultRule, WireFaults
from tests.trainer.envs.fleet_server import SETTINGS

PAGE = (Path(__file__).parents[4] / "docs" / "fleet.md").read_text()


def test_every_fault_and_operation_is_on_the_page() -> None:
    table = PAGE[PAGE.index("| key of a rule |") : PAGE.index("Draws are made")]
    named = set(re.findall(r"`([a-z0-9_]+)`", table))
    assert set(FaultRule.model_fields) | set(OPERATIONS) <= named


def test_the_example_of_the_page_is_a_fault_file() -> None:
    (example,) = re.findall(r"```json\n(.*?)```", PAGE, re.S)
    assert len(WireFaults.model_validate_json(example).rules) == 3


def test_every_admin_route_is_on_the_page() -> None:
    paths = {getattr(route, "path", "") for route in create_app(SETTINGS).routes}
    admin = {path.replace("{instance_id}", "{id}") for path in paths if path.startswith("/admin")}
    assert len(admin) == 4
    assert all(path in PAGE for path in admin)
