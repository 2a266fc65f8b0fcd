"""Only a machine of the gang, from its own address and as one process, learns whose job it is."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from trainer.node.errors import ServiceUnreachable
from trainer.node.rendezvous import RendezvousServer, request_nonce
from trainer.node.settings import NodeSettings

IPS = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
NONCE = "0123456789abcdef" * 2


def free_port() -> int:
    with socket.create_server((IPS[0], 0)) as found:
        port: int = found.getsockname()[1]
        return port


@dataclass(slots=True)
class Gang:
    port: int = field(default_factory=free_port)
    complete: threading.Event = field(default_factory=threading.Event)
    leaving: bool = False

    def settings(self, rank: int, code: str = "hcx_code") -> NodeSettings:
        return NodeSettings.from_environment(
            {
                "HILLCLIMB_BLOBS_URL": "/blobs",
                "HILLCLIMB_RUN_ID": "run_1",
                "HILLCLIMB_ATTEMPT": "1",
                "HILLCLIMB_ATTEMPT_ID": "att_1",
                "HILLCLIMB_BOOTSTRAP_TOKEN": code,
                "HILLCLIMB_RAY_PORT": str(self.port - 2),
                "SKYPILOT_NODE_RANK": str(rank),
                "SKYPILOT_NODE_IPS": "\n".join(IPS),
            }
        )

    def answer(self) -> None:
        rendezvous = RendezvousServer(
            settings=self.settings(0), nonce=NONCE, on_complete=self.complete.set
        )
        rendezvous.open()
        while not self.leaving:
            rendezvous.poll()
            time.sleep(0.005)
        rendezvous.close()


@pytest.fixture
def gang() -> Iterator[Gang]:
    made = Gang()
    head = threading.Thread(target=made.answer)
    head.start()
    deadline = time.monotonic() + 10.0
    while time.monotonic() < deadline:
        try:
            socket.create_connection((IPS[0], made.port)).close()
            break
        except OSError:
            time.sleep(0.01)
    yield made
    made.leaving = True
    head.join()


def test_each_machine_is_told_and_may_ask_again(gang: Gang) -> None:
    one, two = os.urandom(16), os.urandom(16)
    assert request_nonce(gang.settings(1), one) == NONCE
    assert request_nonce(gang.settings(1), one) == NONCE
    assert not gang.complete.is_set()
    assert request_nonce(gang.settings(2), two) == NONCE
    assert gang.complete.wait(10.0)


def test_a_second_process_of_a_machine_is_not_told(gang: Gang) -> None:
    assert request_nonce(gang.settings(1), os.urandom(16)) == NONCE
    with pytest.raises(ServiceUnreachable, match=r"closed|reset"):
        request_nonce(gang.settings(1), os.urandom(16))


def test_who_does_not_have_the_code_is_not_told(gang: Gang) -> None:
    with pytest.raises(ServiceUnreachable, match=r"closed|reset"):
        request_nonce(gang.settings(1, code="hcx_guessed"), os.urandom(16))


def test_a_rank_is_answered_at_its_own_address_alone(
    gang: Gang, monkeypatch: pytest.MonkeyPatch
) -> None:
    from_elsewhere = socket.create_connection

    def elsewhere(whom: tuple[str, int], timeout: float, **_: object) -> socket.socket:
        return from_elsewhere(whom, timeout, source_address=("127.0.0.9", 0))

    monkeypatch.setattr(socket, "create_connection", elsewhere)
    with pytest.raises(ServiceUnreachable, match=r"closed|reset"):
        request_nonce(gang.settings(1), os.urandom(16))


def test_somebody_who_answers_without_the_code_is_not_believed() -> None:
    port = free_port()
    with socket.create_server((IPS[0], port)) as listener:

        def pretend() -> None:
            caller, _ = listener.accept()
            with caller:
                caller.sendall(bytes(16))
                caller.recv(52)
                caller.sendall(bytes(48))

        threading.Thread(target=pretend, daemon=True).start()
        with pytest.raises(ServiceUnreachable, match="not made with the gang's bootstrap token"):
            request_nonce(Gang(port).settings(1), os.urandom(16))


def test_the_answer_on_the_wire_is_not_the_nonce(gang: Gang) -> None:
    heard: list[bytes] = []
    receive = socket.socket.recv

    class Listening(socket.socket):
        def recv(self, size: int, flags: int = 0) -> bytes:
            heard.append(receive(self, size, flags))
            return heard[-1]

    with pytest.MonkeyPatch.context() as patch:
        connect = socket.create_connection

        def listened(*args: object, **more: object) -> socket.socket:
            made = connect(*args, **more)  # type: ignore[arg-type]
            return Listening(fileno=made.detach())

        patch.setattr(socket, "create_connection", listened)
        assert request_nonce(gang.settings(2), os.urandom(16)) == NONCE
    assert heard
    assert bytes.fromhex(NONCE) not in b"".join(heard)
