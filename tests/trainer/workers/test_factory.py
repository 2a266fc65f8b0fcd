"""What a factory gives to the parts it makes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hillclimb.environment.base import ToolSpec
from hillclimb.environment.errors import EnvUnavailable
from hillclimb.protocol.outcomes import StopReason
from tests.trainer.fixtures.scripted import (
    DONE,
    CountingEnv,
    CountingProvider,
    ScriptedEngine,
    a_request,
    a_task,
    byte_tokenizer,
)
from tests.trainer.fixtures.short_run import short_spec
from trainer.workers.factory import WorkerFactory


@dataclass(slots=True)
class Quoting(CountingEnv):
    """Its platform's refusal quotes the key."""

    async def reset(self) -> tuple[ToolSpec, ...]:
        raise EnvUnavailable("the key sk-abcdefgh is unknown", is_permanent=True)


async def test_no_secret_of_the_process_is_in_the_cause_of_a_missing_grade(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    monkeypatch.setenv("PLATFORM_API_KEY", "sk-abcdefgh")
    factory = WorkerFactory(
        spec=short_spec(tmp_path),
        model_dir=tmp_path,
        vocab_size=1000,
        attempt_dir=tmp_path,
        attempt=1,
        provider=CountingProvider(lambda _: Quoting(1)),
    )
    worker = factory.make_rollout_worker(ScriptedEngine(lambda *_: DONE))
    found = await worker.run_rollout(a_task(), 0, a_request())
    assert found.trajectory.outcome.detail == "the key *********** is unknown"


@pytest.mark.parametrize(("style", "is_done"), [("hillclimb", False), ("skyrl", True)])
async def test_rollouts_follow_the_prompt_style_of_the_spec(
    tmp_path: Path, style: str, is_done: bool
) -> None:
    byte_tokenizer().save(str(tmp_path / "tokenizer.json"))
    lengths = {
        "max_input_length": 4000,
        "max_generate_length": 100,
        "max_sequence_length": 4100,
    }
    factory = WorkerFactory(
        spec=short_spec(tmp_path, prompt={"style": style}, rollout=lengths),
        model_dir=tmp_path,
        vocab_size=1000,
        attempt_dir=tmp_path,
        attempt=1,
        provider=CountingProvider(),
    )
    worker = factory.make_rollout_worker(ScriptedEngine(lambda *_: "[done]"))
    found = await worker.run_rollout(a_task(), 0, a_request())
    assert (found.trajectory.stop_reason is StopReason.DONE) is is_done


@pytest.mark.parametrize(
    ("engine", "learner", "transport"),
    [
        ({"type": "vllm"}, {}, "nccl"),
        ({"type": "vllm"}, {"lora": {}}, "lora"),
        ({"type": "vllm", "weight_transport": "shm"}, {}, "shm"),
        # The torch engine, which `auto` may choose, reads files.
        ({"type": "auto"}, {}, "auto"),
    ],
)
def test_between_gpus_weights_go_straight_from_one_to_the_other(
    tmp_path: Path, engine: dict[str, str], learner: dict[str, Any], transport: str
) -> None:
    factory = WorkerFactory(
        spec=short_spec(tmp_path, engine=engine, learner=learner),
        model_dir=tmp_path,
        vocab_size=300,
        attempt_dir=tmp_path,
        attempt=1,
    )
    assert factory.between_gpus().spec.engine.weight_transport == transport
    assert factory.spec.engine.weight_transport == engine.get("weight_transport", "auto")
