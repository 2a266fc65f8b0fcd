"""The compose file says what the code reads: no service lacks a variable, none gets a wrong one."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from api.settings import Settings
from hillclimb.process.launcher import WITHHELD_VARIABLES
from hillclimb.stack.system.cloud_keys import CLOUD_KEYS
from worker.runner.settings import RunnerSettings

ROOT = Path(__file__).parents[2]
IMAGE = {"HILLCLIMB_TRAINER_PYTHON": "/usr/local/bin/python"}
"""What the Dockerfile sets for the runner."""


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
        "services"
    ]
    return found


@pytest.mark.parametrize("name", ["migrate", "api", "worker", "beat", "slack"])
def test_the_control_plane_gets_exactly_variables_that_it_reads(name: str) -> None:
    given = set(services()[name]["environment"])
    known = {str(field.alias) for field in Settings.model_fields.values()}
    required = {str(f.alias) for f in Settings.model_fields.values() if f.is_required()}
    assert required <= given <= known


def test_the_runner_gets_what_it_reads_and_no_key_of_the_service() -> None:
    given = services()["runner"]["environment"]
    assert all(
        f"{name}={value}" in (ROOT / "Dockerfile").read_text() for name, value in IMAGE.items()
    )
    settings = RunnerSettings.from_environment(given | IMAGE)
    assert settings.api_url == "http://api:8710"
    assert set(given) & WITHHELD_VARIABLES == {"HILLCLIMB_RUNNER_TOKEN"}


def test_the_clouds_credentials_are_in_a_volume_of_one_service_alone() -> None:
    mounts = {name: service.get("volumes", []) for name, service in services().items()}
    assert mounts["sky-api"] == ["sky:/var/lib/sky"]
    assert [name for name, places in mounts.items() if any("sky:" in p for p in places)] == [
        "sky-api"
    ]
    assert "ports" not in services()["sky-api"], "reachable inside the network alone"
    assert (
        "install -d -o hillclimb -g hillclimb -m 700 /var/lib/sky"
        in (ROOT / "Dockerfile").read_text()
    )


def test_who_can_speak_to_skypilots_server_is_the_worker_for_clusters_alone() -> None:
    """It has no keys of its own: a trainer that reached it could rent machines."""
    networks = {name: set(each.get("networks", ["default"])) for name, each in services().items()}
    near = {name for name, each in networks.items() if each & networks["sky-api"]}
    assert near == {"sky-api", "cluster-worker"}
    assert "default" in networks["cluster-worker"], "the database and the broker are there"
    declared = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["networks"]
    assert set().union(*networks.values()) - {"default"} == set(declared)


def test_skypilots_server_gets_no_key_of_the_service() -> None:
    given = set(services()["sky-api"]["environment"])
    assert given == {"SKYPILOT_DISABLE_USAGE_COLLECTION", *CLOUD_KEYS}
    elsewhere = [each for name, each in services().items() if name != "sky-api"]
    assert not any(CLOUD_KEYS.keys() & each.get("environment", {}) for each in elsewhere)


def test_what_the_compose_file_asks_for_is_in_the_example() -> None:
    example = (ROOT / ".env.example").read_text()
    text = (ROOT / "docker-compose.yml").read_text()
    asked = {part.split(":?")[0] for part in text.split("${")[1:] if ":?" in part.split("}")[0]}
    assert all(f"\n{name}=" in f"\n{example}" for name in asked)


def test_credentials_come_from_a_file_of_their_own_for_those_that_need_them_alone() -> None:
    """Node secrets are named by the operator: no list of the compose file could hand them on."""
    optional = [{"path": "secrets.env", "required": False}]
    got = {name for name, each in services().items() if each.get("env_file") == optional}
    assert got == {"migrate", "api", "worker", "cluster-worker", "beat", "slack", "runner"}
    assert not any("env_file" in each for name, each in services().items() if name not in got)
    for ignored in (".gitignore", ".dockerignore"):
        assert "secrets.env" in (ROOT / ignored).read_text().splitlines()


def test_a_plain_up_starts_what_rents_where_the_example_says_so() -> None:
    """A profile of the command line is forgotten at the next `docker compose up`."""
    example = (ROOT / ".env.example").read_text().splitlines()
    assert "COMPOSE_PROFILES=" in example
    optional = {name: each["profiles"] for name, each in services().items() if "profiles" in each}
    assert optional == {
        "cluster-worker": ["clouds"],
        "sky-api": ["clouds"],
        "slack": ["slack"],
    }


def test_every_process_of_the_compose_file_is_a_row_of_the_deployment_page() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    queue = services()["cluster-worker"]["command"]
    assert " ".join(queue[: queue.index("--loglevel")]) in page
    assert " ".join(services()["slack"]["command"]) in page


def test_the_volume_of_the_state_belongs_to_the_images_user() -> None:
    (mount,) = services()["runner"]["volumes"]
    place = mount.split(":")[1]
    assert (
        f"install -d -o hillclimb -g hillclimb -m 700 {place}" in (ROOT / "Dockerfile").read_text()
    )


def test_the_image_installs_the_data_plane_as_make_does() -> None:
    installs = ("-c requirements/trainer.txt torch", "--no-deps -r requirements/trainer.txt")
    for text in ((ROOT / "Dockerfile").read_text(), (ROOT / "Makefile").read_text()):
        first, second = (text.index(each) for each in installs)
        assert first < second


def test_the_runner_has_room_for_rays_object_store_and_the_weights() -> None:
    assert services()["runner"]["shm_size"] == "2gb"
