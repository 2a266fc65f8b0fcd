"""A coding agent without a model: takes a crippled spec to a confirmed improvement over MCP.

    hillclimb up
    .venv/bin/python benchmarks/experiments/scripted_agent.py --out agent.json

It starts `hillclimb mcp` with an agent key for three runs. The spec's learning rate is a tenth of
what its author used. The agent plans it, submits it as the baseline, waits, reads how far
it came although groups had signal, forks it with ten times the rate under two seeds, and
tests the hypothesis as an experiment, whose changelog entry it writes. A fourth run is refused.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

SPEC = Path(__file__).with_suffix(".yaml")
CRIPPLED = 10
NUM_RUNS = 3
WATCH_S = 60
THRESHOLD = "eval/all/pass_at_1 >= +0.05"
Json = dict[str, Any]
Submitted = Callable[[str], None]
"""Is called with the id of each new run."""


class Refused(Exception):
    """A tool refused; `body` has code, message, errors and retryable."""

    def __init__(self, body: Json) -> None:
        super().__init__(body["message"])
        self.body = body


class Session:
    """A session with `hillclimb mcp`: JSON-RPC over its standard input and output."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "hillclimb.cli", "mcp"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(environment),
        )
        self._number = 0
        self.num_calls = 0
        client = {"name": "scripted-agent", "version": "1"}
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
        self.server = self._request("initialize", hello)
        self._write({"method": "notifications/initialized"})
        self.tools = {each["name"] for each in self._request("tools/list", {})["tools"]}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.__exit__(kind, error, trace)

    def call(self, tool: str, **arguments: Any) -> Any:
        """Return the result of a tool; raises Refused."""
        self.num_calls += 1
        result = self._request("tools/call", {"name": tool, "arguments": arguments})
        text = result["content"][0]["text"]
        if result["isError"]:
            raise Refused(json.loads(text))
        return json.loads(text) if text.startswith("{") else text

    def _request(self, method: str, params: Json) -> Json:
        self._number += 1
        self._write({"id": self._number, "method": method, "params": params})
        assert self._server.stdout is not None
        answer = json.loads(self._server.stdout.readline())
        assert answer["id"] == self._number, answer
        assert "error" not in answer, answer
        result: Json = answer["result"]
        return result

    def _write(self, message: Json) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        self._server.stdin.flush()


def crippled(spec: Json) -> Json:
    """Return the spec with a tenth of its learning rate."""
    optimizer = dict(spec["optimizer"])
    return spec | {"optimizer": optimizer | {"lr": optimizer["lr"] / CRIPPLED}}


def climb(session: Session, spec: Json, *, key: str, submitted: Submitted) -> Json:
    """Take the crippled `spec` to a confirmed improvement; return what the agent found."""
    grant = session.call("grant")["grant"]
    assert grant["num_runs"] - grant["num_runs_used"] == NUM_RUNS, grant
    plan = session.call("plan", spec=spec)
    baseline = session.call("submit", spec=spec, idempotency_key=f"{key}-baseline")["id"]
    submitted(baseline)
    _wait(session, baseline)
    before = _pass_rate(session, baseline)
    signal = session.call("signal", run_id=baseline)["all"]
    rate = spec["optimizer"]["lr"] * CRIPPLED
    _state_hypothesis(session, key, baseline, before, signal, rate)
    variants = []
    for seed in range(NUM_RUNS - 1):
        changes = {"optimizer.lr": rate, "schedule.seed": seed}
        name = f"{spec['name']} lr {rate:g} seed {seed}"
        fork = session.call("fork", run_id=baseline, changes=changes, name=name)
        submitted(fork["id"])
        variants.append(fork["id"])
        session.call("experiment_add", key=key, run_id=fork["id"], arm=f"lr {rate:g}")
    for run_id in variants:
        _wait(session, run_id)
    after = [_pass_rate(session, run_id) for run_id in variants]
    results = session.call("experiment_results", key=key)
    word = results["word"]
    compared = session.call("compare", a=baseline, b=variants[0])
    works = f"optimizer.lr {rate:g}: pass@1 {before:.3f} became {after[0]:.3f} and {after[1]:.3f}."
    session.call(
        "experiment_edit",
        key=key,
        **({"works": [works]} if word == "confirmed" else {"fails": [works]}),
        next_steps=["Try a rate between the two, and a third seed."],
    )
    changelog = session.call("changelog", limit=1)
    return {
        "plan_warnings": plan.get("warnings", []),
        "baseline": baseline,
        "variants": variants,
        "pass_at_1": {"baseline": before, "variants": after},
        "reading": signal["reading"],
        "word": word,
        "verdicts": {name: each["all"]["verdict"] for name, each in compared["decodings"].items()},
        "changelog": changelog,
        "fourth_run": _refused(session, spec),
        "grant": session.call("grant")["grant"],
        "num_calls": session.num_calls,
    }


def _state_hypothesis(
    session: Session, key: str, baseline: str, before: float, signal: Json, rate: float
) -> None:
    ratio = signal.get("signal_ratio", 0.0)
    session.call(
        "experiment_create",
        key=key,
        title="ten times the learning rate",
        hypothesis=(
            f"pass@1 ended at {before:.0%} although {ratio:.0%} of the groups had signal"
            f" ({signal['why']}). The learning rate is too small."
        ),
        watch=[THRESHOLD],
        changes=[{"key": "optimizer.lr", "rationale": f"{rate:g} is ten times the baseline's"}],
        baseline=baseline,
    )


def _wait(session: Session, run_id: str) -> None:
    after = 0
    while True:
        seen = session.call("watch", run_id=run_id, wait_s=WATCH_S, after=after)
        after = seen["next_after"]
        if seen["has_ended"]:
            break
    assert seen["run"]["status"] == "succeeded", seen


def _pass_rate(session: Session, run_id: str) -> float:
    """Return pass@1 of the last evaluation, of its first decoding."""
    found = session.call("evaluations", run_id=run_id)["evaluations"]
    last = max(each["step"] for each in found)
    return float(next(each for each in found if each["step"] == last)["all"]["pass_at_1"])


def _refused(session: Session, spec: Json) -> Json:
    """Submit one run more than the grant has; return the refusal."""
    try:
        session.call("submit", spec=spec)
    except Refused as refusal:
        return refusal.body
    raise AssertionError("the service accepted a run beyond the grant")


def main() -> int:
    """Create the agent's key, run the agent, and write what it found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spec", type=Path, default=SPEC)
    parser.add_argument("--key", default="agent-1", help="key of the experiment")
    parser.add_argument("--out", type=Path, required=True, help="file of the findings (JSON)")
    options = parser.parse_args()
    command = [sys.executable, "-m", "hillclimb.cli", "agent-key", "create", "scripted-agent"]
    made = subprocess.run(
        [*command, "--runs", str(NUM_RUNS), "--json"], check=True, capture_output=True, text=True
    )
    environment = os.environ | {"HILLCLIMB_API_KEY": json.loads(made.stdout)["key"]}
    spec = crippled(yaml.safe_load(options.spec.read_text()))
    with Session(environment) as session:
        found = climb(session, spec, key=options.key, submitted=print)
    options.out.write_text(json.dumps(found, indent=2) + "\n")
    print(found["changelog"])
    return 0 if found["word"] == "confirmed" else 1


if __name__ == "__main__":
    sys.exit(main())
