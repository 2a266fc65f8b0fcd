"""Serves an ASGI app of a file on loopback, in an environment of its own (`.venv-peers`).

    python serve.py DIRECTORY MODULE PORT

PORT 0 lets the system choose. Prints the port once it listens; ends when its standard input does,
so that no server outlives the test that started it.
"""

import asyncio
import importlib
import socket
import sys
import threading

import uvicorn


def main(directory: str, module: str, port: int) -> None:
    sys.path.insert(0, directory)
    app = importlib.import_module(module).app
    listener = socket.create_server(("127.0.0.1", port))
    config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)

    def watch() -> None:
        sys.stdin.read()
        server.should_exit = True

    threading.Thread(target=watch, daemon=True).start()
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    asyncio.run(server.serve(sockets=[listener]))


main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
