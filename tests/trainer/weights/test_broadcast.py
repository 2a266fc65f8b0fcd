"""A broadcast group waits longer for its members to join than for a broadcast."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch

from trainer.weights import broadcast
from trainer.weights.broadcast import WeightBroadcastGroup, free_address

CPU = torch.device("cpu")
SHORT = timedelta(seconds=0.5)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broadcast, "TIMEOUT", SHORT)


def test_a_member_that_joins_late_is_waited_for_and_one_that_is_gone_is_not() -> None:
    address = free_address()
    with ThreadPoolExecutor(1) as pool:
        first: Future[WeightBroadcastGroup] = pool.submit(WeightBroadcastGroup, address, 0, 2, CPU)
        threading.Event().wait(3 * SHORT.total_seconds())
        second = WeightBroadcastGroup(address, 1, 2, CPU)
        group = first.result(timeout=30.0)
        sent = pool.submit(group.broadcast, torch.arange(3.0))
        received = torch.zeros(3)
        second.broadcast(received)
        sent.result(timeout=30.0)
        assert received.tolist() == [0.0, 1.0, 2.0]
    began = time.monotonic()
    with pytest.raises(RuntimeError):
        second.broadcast(received)
    assert time.monotonic() - began < 30.0, "it waited as long as for a first contact"
