"""The stack's own Valkey server: configuration, command line and readiness."""

import socket
from dataclasses import dataclass
from pathlib import Path

from hillclimb.stack.system.binaries import valkey_program
from hillclimb.stack.system.ports import LOOPBACK


@dataclass(frozen=True, slots=True, kw_only=True)
class ValkeyServer:
    """One Valkey on 127.0.0.1:`port`, data in `directory`; every client needs `password`."""

    directory: Path
    port: int
    password: str

    @property
    def url(self) -> str:
        """The connection URL with the password, database 0."""
        return f"redis://:{self.password}@{LOOPBACK}:{self.port}/0"

    def initialise(self) -> None:
        """Write the configuration to a private file: a command line would show the password."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        lines = {
            "bind": LOOPBACK,
            "port": str(self.port),
            "requirepass": self.password,
            "dir": f'"{self.directory.resolve()}"',
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": '""',
            "daemonize": "no",
            "set-proc-title": "no",  # the command line stays the one we started
        }
        configuration = self.directory / "valkey.conf"
        configuration.touch(mode=0o600)
        configuration.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))

    def command(self) -> tuple[str, ...]:
        """The server's command line; `initialise` must run first."""
        return (str(valkey_program()), str(self.directory.resolve() / "valkey.conf"))

    def ready(self) -> bool:
        """True when PING with our password is answered (false while the append-only file loads)."""
        return answers_ping(self.port, self.password)


def answers_ping(port: int, password: str, *, host: str = LOOPBACK, timeout_s: float = 1.0) -> bool:
    """True when the server on `host`:`port` accepts `password` and answers PING with PONG."""
    request = f"AUTH {password}\r\nPING\r\n" if password else "PING\r\n"
    expected = b"+OK\r\n+PONG\r\n" if password else b"+PONG\r\n"
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(request.encode())
            with connection.makefile("rb") as reply:
                return reply.read(len(expected)) == expected
    except OSError:
        return False
