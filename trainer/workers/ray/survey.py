"""`python -m trainer.placement.survey`: the acceptance test of every machine of a Ray cluster.

Waits until all machines are there, runs `trainer.node.fitness` on each of them in a task pinned to
it, and writes one JSON list. A process of its own: the node that starts it can end it at any time.
Exit code 0: every machine was looked at, fit or not. 1: standard error says what is missing.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainer.node.fitness import Demands, inspect
from trainer.placement.cluster import use_loopback

POLL_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.placement.survey")
    parser.add_argument("--address", required=True, help="HOST:PORT of the Ray cluster's head")
    parser.add_argument("--nodes", type=int, required=True, help="machines to wait for")
    parser.add_argument("--wait", type=float, required=True, help="seconds to wait for them")
    parser.add_argument("--demands", required=True, help="what each needs (JSON)")
    parser.add_argument("--out", type=Path, required=True, help="file for what was found")
    given = parser.parse_args(arguments)
    demands = Demands.model_validate_json(given.demands)
    use_loopback(given.address.startswith("127."))
    deadline = time.monotonic() + given.wait
    try:
        _join(given.address, deadline)
        nodes = _wait(given.nodes, deadline)
        if len(nodes) < given.nodes:
            there = ", ".join(sorted(node["NodeManagerAddress"] for node in nodes))
            sys.stderr.write(
                f"{len(nodes)} of {given.nodes} machines came within {given.wait:g} s: {there}\n"
            )
            return 1
        given.out.write_text(json.dumps(_inspect_all(nodes, demands)))
    finally:
        ray.shutdown()
    return 0


def _join(address: str, deadline: float) -> None:
    """Join the cluster; its head accepts connections before it lets anybody in."""
    while True:
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        else:
            return


def _wait(wanted: int, deadline: float) -> list[dict[str, Any]]:
    while True:
        listed: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        nodes = [node for node in listed if node["Alive"]]
        if len(nodes) >= wanted or time.monotonic() > deadline:
            return nodes
        time.sleep(POLL_S)


def _inspect_all(nodes: list[dict[str, Any]], demands: Demands) -> list[dict[str, Any]]:
    task = ray.remote(_inspect)
    looking = [
        task.options(
            num_cpus=0,
            # Without a share in the GPUs Ray would hide them from the task.
            num_gpus=demands.num_gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            max_retries=0,
        ).remote(demands.model_dump_json(), node["NodeManagerAddress"])
        for node in nodes
    ]
    found: list[dict[str, Any]] = ray.get(looking)
    return found


def _inspect(demands: str, ip: str) -> dict[str, Any]:
    return inspect(Demands.model_validate_json(demands), ip).model_dump(mode="json")


if __name__ == "__main__":
    sys.exit(main())
