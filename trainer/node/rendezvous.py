"""The gang's rendezvous: the first machine gives the job's nonce to the others.

The nonce proves to the service that a machine belongs to the job; without it no machine gets the
operator's secrets. A caller proves that it has the gang's bootstrap token by an HMAC over a random
challenge, and the nonce comes back encrypted with a pad from the same token, so neither is readable
on the network. Each rank is answered at its own address only, and one process of it.
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
"""Deadline of one call; the first machine's loop waits meanwhile."""
KEY_BYTES, MAC_BYTES = 16, 32


@dataclass(slots=True, kw_only=True)
class RendezvousServer:
    """The first machine's side of the rendezvous; `nonce` is 32 hexadecimal digits."""

    settings: NodeSettings
    nonce: str = field(repr=False)
    on_complete: Callable[[], None]
    """Called once every machine has been answered: each has read its secrets file by then."""
    _listener: socket.socket | None = None
    _answered: dict[int, bytes] = field(default_factory=dict)
    """Key of the answered process, by rank."""

    def open(self) -> None:
        """Listen. Raises OSError."""
        gang = self.settings.gang
        self._listener = socket.create_server((gang.own_ip, self.settings.rendezvous_port))
        self._listener.settimeout(0.0)

    def poll(self) -> None:
        """Answer one caller, if there is one; a caller outside the gang gets no answer."""
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
        """Stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    def _answer(self, caller: socket.socket, address: str) -> None:
        deadline = time.monotonic() + CALL_S
        challenge = secrets.token_bytes(KEY_BYTES)
        caller.settimeout(CALL_S)
        caller.sendall(challenge)
        request = _receive(caller, 4 + KEY_BYTES + MAC_BYTES, deadline)
        rank, key = int.from_bytes(request[:4], "big"), request[4 : 4 + KEY_BYTES]
        code, ips = self.settings.code, self.settings.gang.ips
        expected = _mac(code, b"member", challenge, request[: 4 + KEY_BYTES])
        if not hmac.compare_digest(expected, request[4 + KEY_BYTES :]):
            raise ConnectionRefusedError("it does not have the gang's bootstrap token")
        if not 0 < rank < len(ips) or address != ips[rank]:
            raise ConnectionRefusedError(f"machine {rank} is not at this address")
        if self._answered.setdefault(rank, key) != key:
            raise ConnectionRefusedError(f"another process of machine {rank} was answered before")
        pad = _mac(code, b"pad", challenge, key)
        encrypted = bytes(a ^ b for a, b in zip(bytes.fromhex(self.nonce), pad, strict=False))
        caller.sendall(encrypted + _mac(code, b"head", challenge, key + encrypted))


def request_nonce(settings: NodeSettings, key: bytes) -> str:
    """Return the job's nonce from the first machine. Raises ServiceUnreachable."""
    gang, deadline = settings.gang, time.monotonic() + CALL_S
    address = (gang.head_ip, settings.rendezvous_port)
    try:
        with socket.create_connection(address, CALL_S, source_address=(gang.own_ip, 0)) as head:
            challenge = _receive(head, KEY_BYTES, deadline)
            request = gang.rank.to_bytes(4, "big") + key
            head.sendall(request + _mac(settings.code, b"member", challenge, request))
            answer = _receive(head, KEY_BYTES + MAC_BYTES, deadline)
    except OSError as error:
        raise ServiceUnreachable(f"the first machine does not answer yet: {error}") from error
    encrypted = answer[:KEY_BYTES]
    expected = _mac(settings.code, b"head", challenge, key + encrypted)
    if not hmac.compare_digest(expected, answer[KEY_BYTES:]):
        raise ServiceUnreachable(
            "the first machine's answer was not made with the gang's bootstrap token"
        )
    pad = _mac(settings.code, b"pad", challenge, key)
    return bytes(a ^ b for a, b in zip(encrypted, pad, strict=False)).hex()


def _receive(peer: socket.socket, size: int, deadline: float) -> bytes:
    """Receive exactly `size` bytes. Raises OSError."""
    data = b""
    while len(data) < size:
        peer.settimeout(max(0.01, deadline - time.monotonic()))
        more = peer.recv(size - len(data))
        if not more:
            raise ConnectionResetError("the peer closed the connection")
        data += more
    return data


def _mac(code: str, *parts: bytes) -> bytes:
    return hmac.new(code.encode(), b"\0".join((b"rollcall", *parts)), hashlib.sha256).digest()
