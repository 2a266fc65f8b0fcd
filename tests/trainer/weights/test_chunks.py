"""Weights from process to process, without an engine."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from trainer.weights.broadcast import WeightBroadcastGroup, free_address
from trainer.weights.chunks import TensorShape, chunk_weights
from trainer.weights.ipc import export_ipc_handle, open_ipc_handle

CPU = torch.device("cpu")


def tensor(name: str, num_bytes: int) -> TensorShape:
    return TensorShape(name, "float32", (num_bytes // 4,), num_bytes)


def test_pieces_are_filled_in_order_and_a_large_tensor_is_one_alone() -> None:
    sizes = {"a": 40, "b": 60, "c": 4, "d": 200, "e": 8}
    chunks = chunk_weights([tensor(name, size) for name, size in sizes.items()], limit=100)
    assert [[each.name for each in chunk] for chunk in chunks] == [["a", "b"], ["c"], ["d"], ["e"]]
    assert chunk_weights([]) == ()


def test_what_one_broadcasts_all_others_have() -> None:
    address, sent = free_address(), torch.arange(6, dtype=torch.float32)
    taken = [torch.zeros(6), torch.zeros(6)]

    def take(number: int) -> None:
        channel = WeightBroadcastGroup(address, number, 3, CPU)
        channel.broadcast(taken[number - 1])

    others = [threading.Thread(target=take, args=(number,)) for number in (1, 2)]
    for each in others:
        each.start()
    WeightBroadcastGroup(address, 0, 3, CPU).broadcast(sent)
    for each in others:
        each.join()
    assert torch.equal(taken[0], sent)
    assert torch.equal(taken[1], sent)


@pytest.fixture(scope="module")
def stranger() -> Iterator[Callable[[str], str]]:
    """Answer a line by a line: a process that is no child of this one, as engines are none.

    To a handle, what it finds there; to an empty line, what it has of it by then.
    """
    program = (
        "import sys; from trainer.weights.ipc import open_ipc_handle\n"
        "for line in sys.stdin:\n"
        "    mine = open_ipc_handle(bytes.fromhex(line)) if line.strip() else mine\n"
        "    print(mine.tolist(), flush=True)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        said, heard = other.stdin, other.stdout

        def ask(line: str) -> str:
            said.write(line + "\n")
            said.flush()
            return heard.readline()

        yield ask


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_process_that_is_no_child_sees_what_is_lent_and_keeps_a_copy(
    dtype: torch.dtype, stranger: Callable[[str], str]
) -> None:
    shown = torch.arange(5, dtype=dtype)
    assert stranger(export_ipc_handle(shown).hex()) == "[0.0, 1.0, 2.0, 3.0, 4.0]\n"
    shown.zero_()
    assert stranger("") == "[0.0, 1.0, 2.0, 3.0, 4.0]\n"
    assert torch.equal(open_ipc_handle(export_ipc_handle(shown)), shown)
