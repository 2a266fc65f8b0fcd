"""vLLM's own code for GPUs takes the options of every preset and variant; no GPU is needed."""

from __future__ import annotations

import copy
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from hillclimb.hardware.model.published import shape_of
from hillclimb.hardware.presets.presets import preset, presets
from hillclimb.spec.run import RunSpec
from tests.trainer.learners.accounted import config_of
from trainer.engines.choose import _options
from trainer.engines.vllm.options import CHUNK_TRANSFER, FILE_TRANSFER
from trainer.inputs.model.directory import load_config, save_config
from trainer.workers.factory import WorkerFactory

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("vllm") is None, reason="vLLM has no wheel for this machine"
    ),
    pytest.mark.long,
    pytest.mark.invariant("vLLM on a GPU takes what every preset asks of it"),
]
COMMIT = "0" * 40
WITHOUT_YARN = {
    "model": {"rope": None},
    "rollout": {"max_input_length": 24_000, "max_sequence_length": 32_768},
}
ADAPTERS = {"learner": {"lora": {"rank": 32, "alpha": 64}, "cpu_offload": False}}
RENTED = tuple(name for name, each in presets().items() if each.spec["backend"]["type"] != "tinker")
BASE = "qwen3-8b-8xh100"
VARIANTS: dict[str, dict[str, Any]] = {
    "two GPUs per engine": {"engine": {"tensor_parallel_size": 2, "data_parallel_size": 2}},
    "adapters": {**ADAPTERS, "engine": {"weight_transport": "lora"}},
    "shared GPUs": {
        "engine": {"weight_transport": "ipc", "data_parallel_size": 8},
        "placement": {"learner_ranks": 8},
    },
    "files": {"engine": {"weight_transport": "shm"}},
    "without YaRN": WITHOUT_YARN,
    "float32": {"engine": {"dtype": "float32"}},
    "Qwen2.5": WITHOUT_YARN
    | {"model": {"rope": None, "source": f"hf:Qwen/Qwen2.5-7B-Instruct@{COMMIT}"}},
    "Llama 3": WITHOUT_YARN
    | {"model": {"rope": None, "source": f"hf:meta-llama/Llama-3.1-8B-Instruct@{COMMIT}"}},
    "fp8 cache": {},
    "a model split by three": {},
    "a rank without kernels": {**ADAPTERS, "engine": {"weight_transport": "lora"}},
}
"""Changes of the preset `BASE`."""
CHANGED: dict[str, dict[str, Any]] = {
    "fp8 cache": {"kv_cache_dtype": "fp8"},
    "a model split by three": {"tensor_parallel_size": 3},
    "a rank without kernels": {"max_lora_rank": 33},
}
"""Changes of the arguments themselves."""
REFUSED = {
    "a model split by three": "must be divisible by tensor parallel size",
    "a rank without kernels": "max_lora_rank",
}
"""That vLLM's own checks are at work is seen by what they refuse."""


def merged(spec: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec with the sections of `changes` put into its own."""
    result = copy.deepcopy(dict(spec))
    for section, values in changes.items():
        result[section] = result.get(section, {}) | values
    return result


def spec_of(case: str) -> RunSpec:
    """Return the spec, with its transport as it is between GPUs."""
    body = preset(case).spec if case in RENTED else merged(preset(BASE).spec, VARIANTS[case])
    spec = RunSpec.model_validate(body)
    factory = WorkerFactory(
        spec=spec, model_dir=Path(), vocab_size=1, attempt_dir=Path(), attempt=1, shared_dir=Path()
    )
    return factory.between_gpus().spec


def model_dir(spec: RunSpec, root: Path) -> Path:
    """A directory with nothing but the config of the published shape."""
    shape = shape_of(spec.model.source)
    assert shape is not None
    directory = root / spec.model.source.partition(":")[2].replace("/", "-")
    config = config_of(shape)
    config.max_position_embeddings = shape.num_positions
    save_config(config, directory)
    return directory


def arguments(case: str, root: Path) -> dict[str, Any]:
    """What the trainer starts vLLM with on a GPU."""
    spec = spec_of(case)
    directory = model_dir(spec, root)
    options = _options(spec, load_config(directory, spec.model), directory)
    return options.engine_arguments() | CHANGED.get(case, {})


@pytest.fixture(scope="module")
def decided(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What vLLM decided in each case; one process for all, which imports vLLM once."""
    root = tmp_path_factory.mktemp("models")
    cases = (*RENTED, *VARIANTS)
    lines = [json.dumps(arguments(case, root)) for case in cases]
    configs = [json.loads(path.read_text()) for path in root.glob("*/config.json")]
    architectures = sorted({name for config in configs for name in config["architectures"]})
    looked = [sys.executable, "-m", "tests.trainer.engines.cuda.inspected", *architectures]
    subprocess.run(looked, capture_output=True, timeout=300, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainer.engines.cuda.validated"],
        input="\n".join(lines),
        env=os.environ | {"VLLM_LOGGING_LEVEL": "ERROR", "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    found = [
        json.loads(line.removeprefix("RESULT "))
        for line in done.stdout.splitlines()
        if line.startswith("RESULT ")
    ]
    assert len(found) == len(cases), done.stderr[-4000:]
    return dict(zip(cases, found, strict=True))


TAKEN = tuple(case for case in (*RENTED, *VARIANTS) if case not in REFUSED)


@pytest.mark.parametrize("case", TAKEN)
def test_vllm_takes_the_options_and_decides_what_the_estimate_says(
    case: str, decided: dict[str, dict[str, Any]]
) -> None:
    spec, found = spec_of(case), decided[case]
    assert "refused" not in found
    assert found["max_model_len"] == spec.rollout.max_sequence_length
    assert found["num_seqs"] == spec.environment.max_concurrent_rollouts
    assert found["tensor_parallel_size"] == spec.engine.tensor_parallel_size
    assert found["executor"] == ("uni" if spec.engine.tensor_parallel_size == 1 else "mp")
    assert found["dtype"] == spec.engine.dtype
    assert found["batched_tokens"] == 8192, "as hillclimb.hardware.memory.engine counts"
    assert found["computes_prompts_in_parts"] is True
    assert found["shares_prefixes"] is True
    assert found["logprobs_mode"] == "processed_logprobs"
    assert found["worker"] == "vllm.v1.worker.gpu_worker.Worker"
    chunks = spec.engine.weight_transport in ("ipc", "nccl")
    assert found["transfer"] == (CHUNK_TRANSFER if chunks else FILE_TRANSFER)


@pytest.mark.parametrize("case", TAKEN)
def test_what_runs_on_a_gpu_and_never_on_a_cpu_is_known(
    case: str, decided: dict[str, dict[str, Any]]
) -> None:
    """The first minutes on a GPU have to look at these (docs/verified.md)."""
    found = decided[case]
    assert found["is_v2"] is True
    assert found["is_asynchronous"] is True
    assert found["compilation"] == "VLLM_COMPILE"
    assert found["graphs"] == "FULL_AND_PIECEWISE"
    assert found["largest_graph"] >= 128


@pytest.mark.parametrize("case", ["qwen3-8b", "qwen3-32b", BASE])
def test_yarn_reaches_vllm_with_the_models_own_theta(
    case: str, decided: dict[str, dict[str, Any]]
) -> None:
    rope = decided[case]["rope"]
    assert rope["rope_type"] == "yarn"
    assert rope["factor"] == 2.0
    assert rope["original_max_position_embeddings"] == 32_768
    assert rope["rope_theta"] == 1_000_000.0


def test_variants_are_what_their_names_say(decided: dict[str, dict[str, Any]]) -> None:
    assert decided["adapters"]["lora_rank"] == 32
    assert decided["fp8 cache"]["cache_dtype"].startswith("fp8")
    assert decided["Qwen2.5"]["architecture"] == "Qwen2ForCausalLM"
    assert decided["Llama 3"]["architecture"] == "LlamaForCausalLM"
    assert decided["without YaRN"]["rope"]["rope_type"] == "default"


@pytest.mark.parametrize("case", REFUSED)
def test_vllms_own_checks_are_at_work(case: str, decided: dict[str, dict[str, Any]]) -> None:
    assert REFUSED[case] in decided[case]["refused"]
