"""A TCP connection between two services that can be cut, as a network is: nobody is told."""

from __future__ import annotations

import selectors
import socket
import threading
from contextlib import suppress

CHUNK = 65_536
LOOK_S = 0.2


class Wire:
    """Passes bytes between clients of its port and a server on loopback, in a thread of its own.

    While it is cut, nothing passes and no end learns of it: what was sent arrives when the wire is
    whole again, as TCP would send it once more; new connections are accepted and hear nothing.
    """

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._whole = threading.Event()
        self._whole.set()
        self._closing = threading.Event()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cut(self) -> None:
        """Let nothing pass from now on."""
        self._whole.clear()

    def mend(self) -> None:
        """Let everything pass again, what has waited first."""
        self._whole.set()

    def close(self) -> None:
        """Close every connection."""
        self._closing.set()
        self._whole.set()
        self._thread.join()

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector, self._listener:
            selector.register(self._listener, selectors.EVENT_READ)
            while not self._closing.is_set():
                if not self._whole.wait(LOOK_S):
                    continue
                for key, _ in selector.select(LOOK_S):
                    if not self._whole.is_set():
                        break
                    assert isinstance(key.fileobj, socket.socket)
                    if key.fileobj is self._listener:
                        self._connect(selector)
                    else:
                        self._pass(selector, key.fileobj)
            for end in self._peers:
                end.close()

    def _connect(self, selector: selectors.BaseSelector) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._target), timeout=5.0)
        except OSError:
            client.close()
            return
        for one, other in ((client, server), (server, client)):
            one.setblocking(True)
            self._peers[one] = other
            selector.register(one, selectors.EVENT_READ)

    def _pass(self, selector: selectors.BaseSelector, end: socket.socket) -> None:
        if end not in self._peers:
            return
        try:
            data = end.recv(CHUNK)
            self._peers[end].sendall(data)
        except OSError:
            data = b""
        if not data:
            for each in (end, self._peers[end]):
                with suppress(KeyError):
                    selector.unregister(each)
                self._peers.pop(each, None)
                each.close()
