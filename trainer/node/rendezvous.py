"""How a gang's further machines get from the first one what says that they are of one job.

Each calls the first machine with what only the gang has, the exchange code; neither that nor the
answer is readable on the way, and each machine is answered from its own address only, one process
of it. Without the answer the service gives nobody the operator's secrets.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from trainer.node.errors import ServiceUnreachable
from trainer.node.settings import NodeSettings

log = logging.getLogger(__name__)

CALL_S = 3.0
"""One call may take so long; the first machine does nothing else meanwhile."""
KEY_BYTES, MAC_BYTES = 16, 32


@dataclass(slots=True, kw_only=True)
class Rollcall:
    """The first machine's side; `nonce` is 32 hexadecimal digits."""

    settings: NodeSettings
    nonce: str = field(repr=False)
    on_complete: Callable[[], None]
    """Called once every machine has called: each has read by then what it was given."""
    _listener: socket.socket | None = None
    _answered: dict[int, bytes] = field(default_factory=dict)
    """The key of the process that was answered, by rank."""

    def open(self) -> None:
        """Listen. Raises OSError."""
        gang = self.settings.gang
        self._listener = socket.create_server((gang.own_ip, self.settings.rollcall_port))
        self._listener.settimeout(0.0)

    def poll(self) -> None:
        """Answer one machine, if one calls; whoever is none of the gang hears nothing."""
        if self._listener is None:
            return
        try:
            caller, (address, *_) = self._listener.accept()
        except OSError:
            return
        with caller:
            try:
                self._answer(caller, address)
            except OSError as error:
                log.warning("a call from %s was not answered: %s", address, error)
                return
        if len(self._answered) == len(self.settings.gang.ips) - 1:
            self.on_complete()

    def close(self) -> None:
        """Answer nobody any more."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _answer(self, caller: socket.socket, address: str) -> None:
        deadline = time.monotonic() + CALL_S
        challenge = secrets.token_bytes(KEY_BYTES)
        caller.settimeout(CALL_S)
        caller.sendall(challenge)
        said = _receive(caller, 4 + KEY_BYTES + MAC_BYTES, deadline)
        rank, key = int.from_bytes(said[:4], "big"), said[4 : 4 + KEY_BYTES]
        code, ips = self.settings.code, self.settings.gang.ips
        right = _mac(code, b"member", challenge, said[: 4 + KEY_BYTES])
        if not hmac.compare_digest(right, said[4 + KEY_BYTES :]):
            raise ConnectionRefusedError("it does not have the gang's code")
        if not 0 < rank < len(ips) or address != ips[rank]:
            raise ConnectionRefusedError(f"machine {rank} is not at this address")
        if self._answered.setdefault(rank, key) != key:
            raise ConnectionRefusedError(f"another process of machine {rank} was answered")
        pad = _mac(code, b"pad", challenge, key)
        box = bytes(a ^ b for a, b in zip(bytes.fromhex(self.nonce), pad, strict=False))
        caller.sendall(box + _mac(code, b"head", challenge, key + box))


def call(settings: NodeSettings, key: bytes) -> str:
    """Return the job's nonce, asked of the first machine. Raises ServiceUnreachable."""
    gang, deadline = settings.gang, time.monotonic() + CALL_S
    whom = (gang.head_ip, settings.rollcall_port)
    try:
        with socket.create_connection(whom, CALL_S, source_address=(gang.own_ip, 0)) as head:
            challenge = _receive(head, KEY_BYTES, deadline)
            said = gang.rank.to_bytes(4, "big") + key
            head.sendall(said + _mac(settings.code, b"member", challenge, said))
            answer = _receive(head, KEY_BYTES + MAC_BYTES, deadline)
    except OSError as error:
        raise ServiceUnreachable(f"the first machine does not answer yet: {error}") from error
    box = answer[:KEY_BYTES]
    right = _mac(settings.code, b"head", challenge, key + box)
    if not hmac.compare_digest(right, answer[KEY_BYTES:]):
        raise ServiceUnreachable("who answers for the first machine does not have the gang's code")
    pad = _mac(settings.code, b"pad", challenge, key)
    return bytes(a ^ b for a, b in zip(box, pad, strict=False)).hex()


def _receive(peer: socket.socket, size: int, deadline: float) -> bytes:
    """Return so many bytes. Raises OSError."""
    data = b""
    while len(data) < size:
        peer.settimeout(max(0.01, deadline - time.monotonic()))
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionResetError("it hung up")
        data += more
    return data


def _mac(code: str, *parts: bytes) -> bytes:
    return hmac.new(code.encode(), b"\0".join((b"rollcall", *parts)), hashlib.sha256).digest()
