"""What a device could do at best, by its name."""

from __future__ import annotations

import pytest
import torch

from trainer.learners.throughput import peak_flops


@pytest.mark.parametrize(
    ("name", "peak"),
    [
        ("NVIDIA GB200", 2.5e15),
        ("NVIDIA B200", 2.25e15),
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H200", 989e12),
        ("NVIDIA A100-SXM4-80GB", 312e12),
        ("NVIDIA GeForce RTX 4090", None),
    ],
)
def test_the_peak_of_a_gpu_goes_by_its_name(
    monkeypatch: pytest.MonkeyPatch, name: str, peak: float | None
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: name)
    assert peak_flops(torch.device("cuda", 0)) == peak


def test_a_cpu_has_no_peak() -> None:
    assert peak_flops(torch.device("cpu")) is None
