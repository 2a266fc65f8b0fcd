"""Warnings of a plan about rented GPUs that no worker of the run uses."""

from __future__ import annotations

from api.admission.planning import check
from tests.hillclimb.hardware.rented import rented


def test_a_validation_uses_no_gpu() -> None:
    (warning,) = check(rented(kind="validate")).warnings
    assert warning == "8 GPUs are rented with H100:8 on lambda, and the run's workers take 0."
