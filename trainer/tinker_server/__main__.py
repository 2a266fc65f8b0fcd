"""`python -m trainer.tinker_server`: what `hillclimb tinker serve` starts."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.contract.tinker import named_in
from trainer.errors import TrainerError
from trainer.loading import importing
from trainer.sources import resolve_source
from trainer.tinker_server.settings import API_KEY, ServerSettings

EXIT_FAILED = 1
_KEY_BEGINS = "tml-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal; return the exit code (2 for wrong usage)."""
    parser = _parser()
    given = parser.parse_args(arguments)
    if not given.api_key.startswith(_KEY_BEGINS):
        parser.error(f"the key must begin with {_KEY_BEGINS}: the SDK takes no other")
    try:
        _serve(given)
    except (OSError, TrainerError) as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILED
    return 0


def _serve(given: argparse.Namespace) -> None:
    state_dir: Path = given.state_dir
    settings = ServerSettings(
        model_dir=resolve_source(given.model, state_dir / "model"),
        model_name=given.name or named_in(given.model) or given.model,
        state_dir=state_dir,
        api_key=given.api_key,
        max_models=given.max_models,
        max_rank=given.max_rank,
        session_timeout_s=given.session_timeout,
        max_samples=given.max_samples,
        max_context=given.max_context,
    )
    # Whoever mistyped an option has been told by now, and did not wait for torch.
    with importing():
        from trainer.tinker_server.serving import serve  # noqa: PLC0415

    def announce(url: str) -> None:
        told = {"base_url": url, "model": settings.model_name}
        sys.stdout.write((json.dumps(told) if given.json else f"TINKER_BASE_URL={url}") + "\n")
        sys.stdout.flush()

    serve(settings, given.host, given.port, announce)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m trainer.tinker_server")
    default = {name: each.default for name, each in ServerSettings.__dataclass_fields__.items()}
    parser.add_argument("--model", default="builtin:tiny-qwen3-a", help="as model.source of a spec")
    parser.add_argument("--name", help="what clients call it; default: as a spec would")
    parser.add_argument("--state-dir", type=Path, required=True, help="what outlives the process")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0: any free port")
    key = os.environ.get("TINKER_API_KEY") or API_KEY
    parser.add_argument("--api-key", default=key, help="default: TINKER_API_KEY")
    parser.add_argument("--max-models", type=int, default=default["max_models"])
    parser.add_argument("--max-rank", type=int, default=default["max_rank"])
    parser.add_argument("--max-samples", type=int, default=default["max_samples"])
    parser.add_argument("--max-context", type=int, help="tokens; default: the model's positions")
    parser.add_argument("--session-timeout", type=float, default=default["session_timeout_s"])
    parser.add_argument("--json", action="store_true", help="say where it listens as JSON")
    return parser


if __name__ == "__main__":
    sys.exit(main())
