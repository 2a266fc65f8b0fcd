"""Loopback TCP ports: tests for free ones, choice and reservation of a service's port."""

import errno
import random
import socket
import sys
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress

from hillclimb.stack.errors import PortConflict, StackError

LOOPBACK = "127.0.0.1"

CHOSEN = range(20_000, 30_000)
"""Ports that are chosen: below those that the kernel gives to outgoing connections and to servers
that ask for any port (from 32768 on Linux, from 49152 on macOS). A port of that range would be
taken now and then between its choice and its server's start, or while its server restarts.
SkyPilot's queue has one still: SkyPilot derives it from its server's, from 50000 on."""

_FIRST_UNPRIVILEGED = 1024
_HAS_NAMES = sys.platform == "linux"
"""Only Linux names sockets without files."""
_random = random.SystemRandom()  # two processes with one seed would choose the same port


def is_free(port: int) -> bool:
    """True when a server could listen on 127.0.0.1:`port` now, and no stack has reserved it.

    Raises OSError where this process may bind no port at all.
    """
    return _can_bind(port) and not _is_reserved(port)


def _can_bind(port: int) -> bool:
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


@contextmanager
def reserve(ports: Iterable[int]) -> Iterator[None]:
    """Within the block, keep other stacks and outgoing connections off these loopback ports.

    Their own servers can bind them all the while, as often as they start. Other stacks see a name;
    the kernel sees a socket that is bound and does not listen, which lets a server listen beside it
    (not on macOS; and a server that was adopted has the port already). Raises PortConflict if
    another stack reserved one of them since it was found free.
    """
    with ExitStack() as sockets:
        for port in ports:
            if not _take_name(sockets.enter_context(socket.socket(socket.AF_UNIX)), port):
                raise PortConflict(f"Another stack has reserved port {port}; choose another one.")
            holder = sockets.enter_context(socket.socket())
            holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with suppress(OSError):
                holder.bind((LOOPBACK, port))
                if not _can_bind(port):
                    holder.close()
        yield


def _is_reserved(port: int) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return not _take_name(probe, port)


def _take_name(taker: socket.socket, port: int) -> bool:
    """Give a socket the name by which stacks know a port as reserved; False if another has it.

    Such a name is no file and ends with its process. It is known wherever the port is.
    """
    if not _HAS_NAMES:
        return True
    try:
        taker.bind(f"\0hillclimb-port-{port}")
    except OSError as error:
        return error.errno != errno.EADDRINUSE
    return True


def accepts(port: int, *, timeout_s: float = 0.5) -> bool:
    """True when something accepts TCP connections on 127.0.0.1:`port`."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=timeout_s):
            return True
    except OSError:
        return False


def find_free(*, preferred: int | None = None, excluded: Collection[int] = ()) -> int:
    """Return a free loopback port not in `excluded`: `preferred` if possible, else of `CHOSEN`.

    Raises StackError when none is free.
    """
    if preferred is not None and preferred not in excluded and is_free(preferred):
        return preferred
    for port in _random.sample(CHOSEN, len(CHOSEN)):
        if port not in excluded and is_free(port):
            return port
    raise StackError(
        f"No port from {CHOSEN[0]} to {CHOSEN[-1]} is free on {LOOPBACK}: stop what uses them."
    )
