"""What a device could do at best, by its name."""

from __future__ import annotations

import pytest
import torch

from hillclimb.hardware.gpus import BFLOAT16_FLOPS, GPUS
from hillclimb.hardware.model.shapes import shape_of_config
from hillclimb.hardware.model.speed.flops import forward_flops
from tests.trainer.fixtures.families import TYPES, family_model
from trainer.inputs.model.directory import count_parameters
from trainer.learners.packing.packing import pack_single
from trainer.learners.update.throughput import peak_flops, train_flops

DEVICES = {
    "H100": "NVIDIA H100 80GB HBM3",
    "H200": "NVIDIA H200",
    "B200": "NVIDIA B200",
    "A100-80GB": "NVIDIA A100-SXM4-80GB",
    "A100": "NVIDIA A100-SXM4-40GB",
    "L40S": "NVIDIA L40S",
    "L4": "NVIDIA L4",
}
"""What the driver calls each GPU that the estimator knows."""


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA GB200", 2.5e15),
        ("NVIDIA GH200 480GB", 989e12),
        *((name, BFLOAT16_FLOPS[known.removesuffix("-80GB")]) for known, name in DEVICES.items()),
        ("NVIDIA L40", None),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_the_peak_of_a_gpu_goes_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, peak: float | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: name)
    assert peak_flops(torch.device("cuda", 0)) == peak


def test_no_gpu_that_the_estimator_knows_is_left_out_above() -> None:
    assert set(DEVICES) == set(GPUS)


def test_a_cpu_has_no_peak() -> None:
    assert peak_flops(torch.device("cpu")) is None


@pytest.mark.parametrize("model_type", TYPES)
def test_a_step_counts_three_times_the_forward_pass_of_the_estimate(model_type: str) -> None:
    config = family_model(model_type).config
    shape = shape_of_config(config.to_dict())
    micro = pack_single(range(101), device=torch.device("cpu"))
    counted = train_flops(config, micro, num_parameters=count_parameters(config))
    forward = forward_flops(shape, num_tokens=100, num_outputs=100, num_pairs=100 * 101 / 2)
    assert counted == pytest.approx(3.0 * forward)


def test_of_linear_attention_tokens_cost_their_state_and_pairs_only_where_layers_attend() -> None:
    config = family_model("qwen3_5_text").config
    number = count_parameters(config)
    costs = [
        train_flops(
            config,
            pack_single(range(length + 1), device=torch.device("cpu")),
            num_parameters=number,
        )
        for length in (10, 20)
    ]
    pairs = 20 * 21 / 2 - 10 * 11 / 2
    # One of four layers attends, with 2 heads of 32; three have states of 2 heads of 128 x 128.
    own = 12 * 2 * 32 * pairs + 10 * 18 * 3 * 2 * 128 * 128
    assert costs[1] - costs[0] == pytest.approx(own + 10 * 6 * number)
