"""Starts SkyRL 0.3.0's Tinker server from its wheel; runs in `.venv-skyrl`, not in ours.

    python serve_skyrl.py api --base-model DIR --port N ...     what the test starts
    python serve_skyrl.py engine ...                            what that starts in its turn

The wheel needs three things mended: `typing.TypedDict` in a pydantic model fails on Python 3.11;
the server reads its own archives with a `filter`, which Python has from 3.11.4 on (Debian 12 has
3.11.2); and it starts its engine by `uv run`, which works in a checkout of SkyRL only.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import typing
from pathlib import Path
from typing import Any

import typing_extensions

typing.TypedDict = typing_extensions.TypedDict  # type: ignore[assignment]


class UnfilteredTarFile(tarfile.TarFile):
    """One of a Python without filters, which takes the argument and does nothing with it."""

    def extractall(self, *args: Any, filter: object = None, **options: Any) -> None:
        """Extract all members."""
        del filter
        super().extractall(*args, **options)


if not hasattr(tarfile, "data_filter"):
    tarfile.open = UnfilteredTarFile.open


def main() -> None:
    """Be the API's process, or its engine's."""
    part = sys.argv.pop(1)
    if part == "engine":
        from skyrl.tinker import engine

        engine.main()
        return
    import uvicorn
    from skyrl.tinker import api
    from skyrl.tinker.config import EngineConfig, add_model, config_to_argv

    parser = argparse.ArgumentParser()
    add_model(parser, EngineConfig)
    parser.add_argument("--port", type=int, required=True)
    given = vars(parser.parse_args())
    port = given.pop("port")

    def engine_command(parent: list[str], config: EngineConfig) -> list[str]:
        del parent
        return [sys.executable, str(Path(__file__).resolve()), "engine", *config_to_argv(config)]

    api._build_uv_run_cmd_engine = engine_command
    api.app.state.engine_config = EngineConfig.model_validate(given)
    uvicorn.run(api.app, host="127.0.0.1", port=port, log_level="warning")


if __name__ == "__main__":
    main()
