"""What is sent to be graded."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import pickle
import zipfile
from typing import Any

import pytest

from trainer.envs.fleet.verifiers.verification import (
    Statement,
    archive,
    of_source,
    request,
)

SOURCE = "def helper():\n    pass\n\ndef verify(env, final_answer=None):\n    return 1\n"
DOOMED = "import os\nos._exit(7)\ndef verify(env):\n    return 1\n"
SAID = Statement(answer="42", conversation=[{"role": "user", "content": "hi"}])


def body(
    source: str,
    *,
    with_bundle: bool = True,
    timeout_s: float = 12.5,
    runtime_version: str | None = None,
) -> Any:
    verifier = of_source("task-1", source, runtime_version)
    return request(verifier, "i-1", SAID, with_bundle=with_bundle, timeout_s=timeout_s, region=None)


def kwargs_of(sent: Any) -> Any:
    """Return the arguments that the platform unpickles."""
    return pickle.loads(base64.b64decode(sent["args"]))["kwargs"]


def test_the_archive_depends_on_the_source_alone() -> None:
    assert archive(SOURCE) == archive(SOURCE)
    assert archive(SOURCE) != archive(SOURCE + "\n")
    with zipfile.ZipFile(io.BytesIO(archive(SOURCE))) as packed:
        assert packed.namelist() == ["requirements.txt", "verifier.py"]
        assert packed.read("verifier.py").decode() == SOURCE
        assert packed.read("requirements.txt") == b"fleet-python"


def test_source_is_never_run() -> None:
    sent = body(DOOMED)
    assert base64.b64decode(sent["bundle"]) == archive(DOOMED)


def test_the_request_is_the_one_of_fleets_client() -> None:
    sent = body(SOURCE)
    assert pickle.loads(base64.b64decode(sent["args"])) == {
        "args": (None, {"env": "i-1"}),
        "kwargs": {"final_answer": "42"},
    }
    assert sent["args_array"] == [{"env": "i-1"}]
    assert (sent["function_name"], sent["timeout"]) == ("verify", 12)
    assert sent["sha256"] == hashlib.sha256(base64.b64decode(sent["bundle"])).hexdigest()
    # The fields of fleet-python 0.2.133; a strict server refuses any other.
    always = {"key", "sha256", "args", "args_array", "function_name", "timeout", "region"}
    assert set(sent) == always | {"bundle"}
    assert set(body(SOURCE, with_bundle=False)) == always
    assert body(SOURCE, runtime_version="v2")["verifier_runtime_version"] == "v2"


@pytest.mark.parametrize(
    ("time_left_s", "timeout"),
    [(0.2, 1), (1.0, 1), (299.9, 299), (300.0, 300), (400.0, 300), (math.inf, 30)],
)
def test_the_timeout_is_within_the_contracts_range(time_left_s: float, timeout: int) -> None:
    assert body(SOURCE, timeout_s=time_left_s)["timeout"] == timeout


@pytest.mark.parametrize(
    ("signature", "kwargs"),
    [
        ("verify(env)", {}),
        ("verify(env, final_answer=None)", {"final_answer": "42"}),
        ("validate_task(env, *args, **kwargs)", {"final_answer": "42"}),
        (
            "verify(env, *, conversation)",
            {"conversation": json.dumps([{"role": "user", "content": "hi"}])},
        ),
    ],
)
def test_a_verifier_is_given_what_it_declares(signature: str, kwargs: Any) -> None:
    sent = body(f"async def {signature}:\n    return 1\n")
    assert kwargs_of(sent) == kwargs
    assert sent["function_name"] == signature.split("(")[0]


@pytest.mark.parametrize("source", ["def verify(:", "\0", "x = 1", "(" * 1000])
def test_source_that_cannot_be_read_is_sent_all_the_same(source: str) -> None:
    assert body(source)["function_name"] == "verify"
