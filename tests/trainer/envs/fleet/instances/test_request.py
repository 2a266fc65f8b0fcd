"""The part of a task in the request for an instance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hillclimb.blobs.disk import DiskStore
from tests.trainer.inputs.tasks.test_dataset import register
from trainer.envs.fleet.instances.limiter import Limiter
from trainer.envs.fleet.instances.request import InstanceRequests
from trainer.envs.fleet.wire.api import FleetAccount, FleetApi
from trainer.envs.fleet.wire.retry import CallRetry, Meter
from trainer.inputs.tasks.dataset import dataset_tasks

VARIABLES: dict[str, Any] = {
    "CURRENT_DATE": "2026-03-01",
    "LIMIT": 5,
    "AS_TEXT": "5",
    "RATE": 0.5,
    "FLAGS": {"b": [1, None], "a": True},
    "ON": True,
}


async def test_variables_keep_their_types_on_the_wire_and_are_text_in_the_prompt(
    tmp_path: Path,
) -> None:
    row = {
        "key": "t1",
        "prompt": "Book a hotel.",
        "env_key": "booking",
        "env_variables": {**VARIABLES, "NOTHING": None},
        "verifier_code": "def verify(env):\n    return 1\n",
    }
    store = DiskStore(tmp_path)
    (task,) = dataset_tasks(
        store, register(store, [row], {"t1": "train"}), ["booking"], "fleet"
    ).train
    api = FleetApi(FleetAccount(base_url="http://127.0.0.1:9", key="key"))
    retry = CallRetry(operation_s=5.0, meter=Meter(), load=Limiter(1))
    body = (await InstanceRequests(api).of(task, retry)).body()
    await api.close()
    assert body["env_variables"] == VARIABLES
    assert task.env_variables == {
        "CURRENT_DATE": "2026-03-01",
        "LIMIT": "5",
        "AS_TEXT": "5",
        "RATE": "0.5",
        "FLAGS": '{"a": true, "b": [1, null]}',
        "ON": "true",
    }
