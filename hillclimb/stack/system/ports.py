"""Loopback TCP ports: tests for free ones, and choice of a service's port."""

import errno
import random
import socket
from collections.abc import Collection

from hillclimb.stack.errors import StackError

LOOPBACK = "127.0.0.1"

CHOSEN = range(20_000, 30_000)
"""Ports that are chosen: below those that the kernel gives to outgoing connections and to servers
that ask for any port (from 32768 on Linux, from 49152 on macOS). One of these would be taken now
and then between its choice and its server's start, or while its server restarts. SkyPilot's queue
has such a port still: SkyPilot derives it from its server's, in the range from 50000."""

_FIRST_UNPRIVILEGED = 1024
_random = random.SystemRandom()  # two processes with one seed would choose the same port


def is_free(port: int) -> bool:
    """True when a server could listen on 127.0.0.1:`port` now.

    Raises OSError where this process may bind no port at all.
    """
    with socket.socket() as probe:
        # As servers do: a connection lingering in TIME_WAIT must not make the port look taken.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EADDRNOTAVAIL):
                return False
            if error.errno == errno.EACCES and port < _FIRST_UNPRIVILEGED:
                return False
            raise
    return True


def accepts(port: int, *, timeout_s: float = 0.5) -> bool:
    """True when something accepts TCP connections on 127.0.0.1:`port`."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def find_free(*, preferred: int | None = None, reserved: Collection[int] = ()) -> int:
    """Return a free loopback port not in `reserved`: `preferred` if possible, else of `CHOSEN`.

    Raises StackError when none is free.
    """
    if preferred is not None and preferred not in reserved and is_free(preferred):
        return preferred
    for port in _random.sample(CHOSEN, len(CHOSEN)):
        if port not in reserved and is_free(port):
            return port
    raise StackError(
        f"No port from {CHOSEN[0]} to {CHOSEN[-1]} is free on {LOOPBACK}: stop what uses them."
    )
