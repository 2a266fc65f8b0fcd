"""What a spec says of OpenEnv servers, and what it may not say."""

import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.spec.run import RunSpec
from tests.fixtures.factories import make_spec

ROOT = Path(__file__).resolve().parents[3]
SERVER = {"url": "http://127.0.0.1:8765"}


def with_servers(**sections: Any) -> RunSpec:
    environment = {"provider": "openenv", "openenv": {"wiki": SERVER}}
    base: dict[str, Any] = {"data": {"env_keys": ["wiki"]}, "environment": environment}
    return make_spec(**(base | sections))


def test_environments_of_a_server_have_any_name() -> None:
    server = with_servers().environment.openenv["wiki"]
    assert (server.reward, server.max_message_mib, server.headers) == ("last", 16, {})
    key = "Forums_v2.1-homes"
    environment = {
        "provider": "openenv",
        "openenv": {key: SERVER},
        "overrides": {key: {"max_turns": 3}},
    }
    spec = with_servers(data={"env_keys": [key]}, environment=environment)
    assert RunSpec.model_validate_json(spec.model_dump_json()) == spec
    for key in ("a/b", "a:b", "a b", "1a", "", "a" * 65, 'a"b'):
        with pytest.raises(ValidationError, match="env_keys"):
            with_servers(data={"env_keys": [key]})


def test_environments_of_a_dataset_may_be_left_out_until_it_is_resolved() -> None:
    data = {"dataset": "questions@3"}
    assert with_servers(data=data).environment.openenv["wiki"].url == SERVER["url"]


@pytest.mark.parametrize("reward_range", [[1, 1], [3, -1], [0, float("inf")], [0, "nan"], [1]])
def test_a_range_of_rewards_goes_from_a_number_to_a_higher_one(reward_range: list[Any]) -> None:
    maze = {**SERVER, "reward_range": [-0.25, 10]}
    environment = {"provider": "openenv", "openenv": {"wiki": maze}}
    server = with_servers(environment=environment).environment.openenv["wiki"]
    assert (server.reward_range, server.reward_outside) == ((-0.25, 10.0), "refuse")
    environment["openenv"] = {"wiki": {**SERVER, "reward_range": reward_range}}
    with pytest.raises(ValidationError, match="reward_range"):
        with_servers(environment=environment)


@pytest.mark.parametrize(
    ("sections", "sentence"),
    [
        ({"data": {"env_keys": ["wiki", "maps"]}}, "no server for 'maps'"),
        ({"data": {"env_keys": ["maps"]}}, "add environment.openenv.maps.url"),
        (
            {
                "environment": {
                    "provider": "openenv",
                    "openenv": {"wiki": SERVER, "maps": SERVER},
                }
            },
            "a server for 'maps', which data.env_keys does not list",
        ),
        (
            {"data": {"env_keys": ["wiki"], "held_out_template_share": 0.0}},
            "an OpenEnv server has no templates, so leave it out",
        ),
        (
            {
                "environment": {
                    "provider": "openenv",
                    "openenv": {"wiki": SERVER},
                    "faults": {"latency_s": 1.0},
                }
            },
            "faults are injected into minifleet only",
        ),
        (
            {
                "data": {"env_keys": ["booking"]},
                "environment": {"openenv": {"booking": SERVER}},
            },
            "set environment.provider to openenv or leave the section out",
        ),
        (
            {
                "deterministic": True,
                "engine": {"type": "torch"},
                "placement": {"type": "inline"},
            },
            "deterministic needs environment.provider minifleet",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_change(
    sections: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(ValidationError, match=re.escape(sentence)):
        with_servers(**sections)


@pytest.mark.parametrize(
    "server",
    [
        {"url": "ftp://127.0.0.1"},
        {"url": "http://user:secret@127.0.0.1"},
        {"url": "http://127.0.0.1/ws?token=secret"},
        {"url": "http://127.0.0.1", "headers": {"Authorization": "Bearer secret"}},
        {"url": "http://127.0.0.1", "connect_timeout_s": 0},
    ],
)
def test_a_server_is_an_address_and_holds_no_secret(server: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        with_servers(environment={"provider": "openenv", "openenv": {"wiki": server}})


def test_the_environment_of_the_how_to_has_less_than_40_lines_and_is_shown_whole() -> None:
    file = (ROOT / "examples" / "openenv_search" / "environment.py").read_text()
    assert sum(bool(line.strip()) for line in file.splitlines()) < 40
    assert f"```python\n{file}```" in (ROOT / "docs" / "environments.md").read_text()
    spec = (ROOT / "examples" / "search.yaml").read_text()
    assert f"```yaml\n{spec}```" in (ROOT / "docs" / "environments.md").read_text()


def test_a_server_elsewhere_is_taken_only_as_an_experiment() -> None:
    servers = {"wiki": {"url": "https://env.example"}}
    environment = {"provider": "openenv", "openenv": servers}
    with pytest.raises(ValidationError, match="outside the runner's machine was never run"):
        with_servers(environment=environment)
    assert with_servers(environment=environment, experimental=True).environment.openenv
