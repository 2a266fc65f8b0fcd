"""The verifier request of Fleet's own client and ours, for the same verifier and instance.

    .venv-peers/bin/python tests/peers/verifier_request.py

Prints one JSON object: both bodies, with the pickled arguments and the bundles opened.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import pickle
import sys
import zipfile
from types import SimpleNamespace
from typing import Any

from fleet.client import _execute_verifier_remote
from fleet.tasks import verifier_from_string

from trainer.envs.fleet.verifiers.verification import Statement, of_source, request

SOURCE = "def verify(env, final_answer=None):\n    return 1\n"


def official() -> Any:
    """Return the body that Fleet's client posts, for an instance that exists nowhere."""
    bodies: list[Any] = []

    def post(_method: str, _path: str, *, json: Any) -> Any:
        bodies.append(json)
        answer = {"success": True, "execution_time_ms": 1, "result": 1}
        return SimpleNamespace(json=lambda: answer)

    def execute(**arguments: Any) -> Any:
        return _execute_verifier_remote(SimpleNamespace(request=post), **arguments)

    env = SimpleNamespace(
        instance_id="i-1",
        check_bundle_exists=lambda _: SimpleNamespace(success=False),
        execute_verifier_remote=execute,
    )
    verifier = verifier_from_string(SOURCE, "task-1", "task-1", verifier_runtime_version="v2")
    verifier.remote_with_response(env, final_answer="42")
    return bodies[0]


def ours() -> Any:
    """Return the body that the trainer posts."""
    return request(
        of_source("task-1", SOURCE, "v2"),
        "i-1",
        Statement(answer="42", conversation=[]),
        with_bundle=True,
        timeout_s=30.0,
        region=None,
    )


def opened(body: Any) -> Any:
    """Return a body with the contents of its pickle and its bundle."""
    bundle = base64.b64decode(body["bundle"])
    with zipfile.ZipFile(io.BytesIO(bundle)) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    return {
        **body,
        "args": pickle.loads(base64.b64decode(body["args"])),
        "bundle": files,
        "sha256": "of the bundle"
        if body["sha256"] == hashlib.sha256(bundle).hexdigest()
        else "of something else",
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps({"official": opened(official()), "ours": opened(ours())}))
