"""What a device could do at best, by its name."""

from __future__ import annotations

import pytest
import torch

from hillclimb.hardware.gpus import BFLOAT16_FLOPS, GPUS
from trainer.learners.update.throughput import peak_flops

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
