"""`python -m trainer.tinker_server`, the program behind `hillclimb tinker serve`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from hillclimb.process.lazy_imports import gc_paused_import
from hillclimb.spec.backend.tinker import named_in
from trainer.errors import TrainerError
from trainer.inputs.model.sources import resolve_source
from trainer.tinker_server.settings import API_KEY, TinkerServerSettings

EXIT_FAILED = 1
_KEY_BEGINS = "tml-"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal; return the exit code (2 for wrong usage)."""
    usage = parser()
    args = usage.parse_args(arguments)
    keys = args.api_key.split(",")
    if not all(key.startswith(_KEY_BEGINS) for key in keys) or len({*keys}) < len(keys):
        usage.error(
            f"each key must begin with {_KEY_BEGINS} and be there once: the SDK takes no other"
        )
    try:
        _serve(args)
    except (OSError, TrainerError) as error:
        sys.stderr.write(f"error: {error}\n")
        return EXIT_FAILED
    return 0


def settings_of(args: argparse.Namespace) -> TinkerServerSettings:
    """Return the server's settings, with the model's files on this machine.

    Raises:
        TrainerError: the model is not to be had.
    """
    state_dir: Path = args.state_dir
    return TinkerServerSettings(
        model_dir=resolve_source(args.model, state_dir / "model"),
        model_name=args.name or named_in(args.model) or _whole(args.model),
        tokenizer_id=_hub_id(args.model),
        state_dir=state_dir,
        api_key=args.api_key,
        max_models=args.max_models,
        max_rank=args.max_rank,
        session_timeout_s=args.session_timeout,
        max_samples=args.max_samples,
        max_context=args.max_context,
    )


def _serve(args: argparse.Namespace) -> None:
    settings = settings_of(args)
    # Usage errors are reported above, before the slow import of torch.
    with gc_paused_import():
        from trainer.tinker_server.serving import serve  # noqa: PLC0415

    def announce(url: str) -> None:
        info = {"base_url": url, "model": settings.model_name}
        sys.stdout.write((json.dumps(info) if args.json else f"TINKER_BASE_URL={url}") + "\n")
        sys.stdout.flush()

    serve(settings, args.host, args.port, announce)


def _whole(source: str) -> str:
    """Return a directory's absolute path, by which clients in other directories find it too."""
    return str(Path(source).resolve()) if Path(source).is_dir() else source


def _hub_id(source: str) -> str | None:
    """Return the hub's id of a model of the hub, by which clients elsewhere find its tokenizer."""
    return named_in(source) if source.startswith("hf:") else None


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    usage = argparse.ArgumentParser(prog="python -m trainer.tinker_server")
    default = {
        name: each.default for name, each in TinkerServerSettings.__dataclass_fields__.items()
    }
    usage.add_argument("--model", default="builtin:tiny-qwen3-a", help="as model.source of a spec")
    usage.add_argument("--name", help="what clients call it; default: as a spec would")
    usage.add_argument("--state-dir", type=Path, required=True, help="what outlives the process")
    usage.add_argument("--host", default="127.0.0.1")
    usage.add_argument("--port", type=int, default=0, help="0: any free port")
    key = os.environ.get("TINKER_API_KEY") or API_KEY
    usage.add_argument("--api-key", default=key, help="default: TINKER_API_KEY")
    usage.add_argument("--max-models", type=int, default=default["max_models"])
    usage.add_argument("--max-rank", type=int, default=default["max_rank"])
    usage.add_argument("--max-samples", type=int, default=default["max_samples"])
    usage.add_argument("--max-context", type=int, help="tokens; default: the model's positions")
    usage.add_argument("--session-timeout", type=float, default=default["session_timeout_s"])
    usage.add_argument("--json", action="store_true", help="say where it listens as JSON")
    return usage


if __name__ == "__main__":
    sys.exit(main())
