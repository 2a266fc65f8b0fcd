"""`python -m trainer.envs.openenv.check URL`: what is right and what is wrong with a server."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pydantic import JsonValue, ValidationError

from hillclimb.protocol.spec_problems import explain
from hillclimb.spec.environment.openenv import OpenEnvServer
from trainer.envs.openenv.check.check import CheckPlan, ServerCheck
from trainer.envs.openenv.check.finding import FindingMark, ServerFinding
from trainer.envs.openenv.provider import header_values
from trainer.errors import SpecError

EXIT_WRONG, EXIT_USAGE, EXIT_SILENT = 1, 2, 5
MAX_TASKS = 100
"""Tasks of a file whose resets are tried (count)."""


class Refused(Exception):
    """An option that cannot be used, as a sentence."""


def main(words: Sequence[str] | None = None) -> int:
    """Check a server and return the exit code: 0 right, 1 wrong, 2 usage, 5 no answer."""
    args = _parser().parse_args(words)
    try:
        plan = _plan(args)
    except Refused as refusal:
        sys.stderr.write(f"error: {refusal}\n")
        return EXIT_USAGE
    findings = asyncio.run(ServerCheck(plan).run())
    wrong = [each for each in findings if each.mark is FindingMark.WRONG]
    sys.stdout.write(_as_json(findings) if args.json else _as_text(findings))
    if not wrong:
        return 0
    return EXIT_SILENT if wrong[0].what == "answers" else EXIT_WRONG


def _as_json(findings: Sequence[ServerFinding]) -> str:
    is_right = all(each.mark is not FindingMark.WRONG for each in findings)
    return json.dumps({"ok": is_right, "findings": [asdict(each) for each in findings]}) + "\n"


def _as_text(findings: Sequence[ServerFinding]) -> str:
    return "".join(f"{each.mark.value:<6} {each.sentence}\n" for each in findings)


def _plan(args: argparse.Namespace) -> CheckPlan:
    headers: dict[str, JsonValue] = dict(_header(each) for each in args.header_from)
    settings: dict[str, JsonValue] = {"url": args.url, "reward": args.reward, "headers": headers}
    if args.reward_range is not None:
        settings["reward_range"] = list(args.reward_range)
    try:
        server = OpenEnvServer.model_validate(settings)
        values = header_values("ENV", server, os.environ)
    except ValidationError as error:
        raise Refused("; ".join(item.message for item in explain(error))) from error
    except SpecError as error:
        raise Refused(str(error).removeprefix("environment.openenv.ENV.")) from error
    tasks = _tasks_of(args.tasks) if args.tasks else []
    resets = [reset for reset, _ in tasks] or [{"seed": 0}]
    extra = _object(args.reset, "--reset")
    return CheckPlan(
        server=server,
        resets=[{**each, **extra} for each in resets],
        episodes=args.episodes,
        max_turns=args.max_turns,
        deadline_s=args.deadline,
        headers=values,
        have_prompts=bool(tasks) and all(has_prompt for _, has_prompt in tasks),
    )


def _header(text: str) -> tuple[str, str]:
    name, colon, variable = text.partition(":")
    if not colon:
        raise Refused(f"--header-from {text} is not NAME:VARIABLE")
    return name.strip(), variable.strip()


def _tasks_of(path: Path) -> list[tuple[Mapping[str, JsonValue], bool]]:
    """Return of the first tasks of a file `metadata.reset`, and whether they have a prompt."""
    tasks: list[tuple[Mapping[str, JsonValue], bool]] = []
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if len(tasks) == MAX_TASKS:
                    break
                if line.strip():
                    tasks.append(_task_of(line, f"{path}, line {number}"))
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or fault
        raise Refused(f"cannot read {path}: {reason}") from fault
    if not tasks:
        raise Refused(f"{path} has no task")
    return tasks


def _task_of(line: str, where: str) -> tuple[Mapping[str, JsonValue], bool]:
    task = _object(line, where)
    metadata = task.get("metadata") or {}
    reset = metadata.get("reset", {}) if isinstance(metadata, dict) else None
    if not isinstance(reset, dict):
        raise Refused(f"{where}: metadata.reset is no object of arguments")
    return reset, bool(task.get("prompt"))


def _object(text: str, where: str) -> dict[str, JsonValue]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise Refused(f"{where} is no JSON: {fault}") from fault
    if not isinstance(value, dict):
        raise Refused(f"{where} is no JSON object")
    return value


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--tasks", type=Path)
    parser.add_argument("--reset", default="{}")
    parser.add_argument("--reward", choices=("last", "sum"), default="last")
    parser.add_argument("--reward-range", type=float, nargs=2)
    parser.add_argument("--header-from", action="append", default=[])
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--max-turns", type=int, default=8)
    parser.add_argument("--deadline", type=float, default=30.0)
    parser.add_argument("--json", action="store_true")
    return parser


if __name__ == "__main__":
    sys.exit(main())
