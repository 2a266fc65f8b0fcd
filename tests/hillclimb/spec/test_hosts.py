"""Which addresses are this machine, and which secrets a spec may send to others."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from hillclimb.spec.environment.openenv import OpenEnvServer
from hillclimb.spec.hosts import is_loopback
from hillclimb.spec.preflight.preflight import TeacherSpec


@pytest.mark.parametrize(
    "url",
    ["http://localhost:1/x", "http://127.0.0.1", "https://127.8.9.1:99", "ws://[::1]:8/"],
)
def test_this_machine_has_these_addresses(url: str) -> None:
    assert is_loopback(url)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.evil.example",
        "http://127.0.0.1.evil.example",
        "http://localhost.evil.example",
        "http://10.0.0.1",
        "http://[::2]",
        "http://0.0.0.0",
        "not a url",
    ],
)
def test_other_machines_do_not_pass_for_it(url: str) -> None:
    assert not is_loopback(url)


@pytest.mark.parametrize("name", ["AWS_SECRET_ACCESS_KEY", "FLEET_API_KEY", "RUN_SECRET_"])
def test_a_spec_cannot_send_the_runners_own_secrets(name: str) -> None:
    server: dict[str, Any] = {"url": "https://env.example", "headers": {"X-A": name}}
    with pytest.raises(ValidationError, match="begin with RUN_SECRET_: "):
        OpenEnvServer.model_validate(server)
    teacher = {"base_url": "https://teacher.example", "model": "m", "api_key_env": name}
    with pytest.raises(ValidationError, match="begin with RUN_SECRET_: "):
        TeacherSpec.model_validate(teacher)


def test_a_spec_names_what_the_operator_set_for_runs() -> None:
    server = {"url": "https://env.example", "headers": {"X-A": "RUN_SECRET_A"}}
    assert OpenEnvServer.model_validate(server).headers == {"X-A": "RUN_SECRET_A"}
    teacher = {"base_url": "https://t.example", "model": "m", "api_key_env": "RUN_SECRET_T"}
    assert TeacherSpec.model_validate(teacher).api_key_env == "RUN_SECRET_T"


@pytest.mark.parametrize("url", ["http://env.example", "ws://env.example/a"])
def test_what_a_spec_sends_to_other_machines_is_not_overheard(url: str) -> None:
    server: dict[str, Any] = {"url": url, "headers": {"X-A": "RUN_SECRET_A"}}
    with pytest.raises(ValidationError, match=f"url is {url}, but the values of headers travel"):
        OpenEnvServer.model_validate(server)
    assert OpenEnvServer.model_validate({"url": url}).headers == {}


def test_a_teachers_key_is_not_overheard() -> None:
    teacher = {"base_url": "http://t.example/v1", "model": "m", "api_key_env": "RUN_SECRET_T"}
    with pytest.raises(ValidationError, match="api_key_env travels over https only"):
        TeacherSpec.model_validate(teacher)
    for where in ("http://127.0.0.1:8000/v1", "http://localhost:8000", "https://t.example/v1"):
        assert TeacherSpec.model_validate(teacher | {"base_url": where}).base_url == where
