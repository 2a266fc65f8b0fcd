"""`python -m trainer.workers.ray.check_nodes`: the acceptance test of a Ray cluster's machines.

Waits until all machines have joined, runs `trainer.node.checks.node_check` on each in a task pinned
to it, and writes one JSON list. Runs in its own process, so that the node can kill it at
any time. Exit code 0: every machine was checked, fit or not. 1: standard error names the missing
machines.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hillclimb.process.lazy_imports import gc_paused_import

with gc_paused_import():
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from trainer.node.checks.node_check import NodeRequirements, check_node
    from trainer.workers.ray.cluster import use_loopback

POLL_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m trainer.workers.ray.check_nodes")
    parser.add_argument("--address", required=True, help="HOST:PORT of the Ray cluster's head")
    parser.add_argument("--nodes", type=int, required=True, help="machines to wait for")
    parser.add_argument("--wait", type=float, required=True, help="seconds to wait for them")
    parser.add_argument("--requirements", required=True, help="what each needs (JSON)")
    parser.add_argument("--out", type=Path, required=True, help="file for the results")
    options = parser.parse_args(arguments)
    requirements = NodeRequirements.model_validate_json(options.requirements)
    use_loopback(options.address.startswith("127."))
    deadline = time.monotonic() + options.wait
    try:
        _join(options.address, deadline)
        nodes = _wait(options.nodes, deadline)
        if len(nodes) < options.nodes:
            there = ", ".join(sorted(node["NodeManagerAddress"] for node in nodes))
            sys.stderr.write(
                f"{len(nodes)} of {options.nodes} machines joined within {options.wait:g} s:"
                f" {there}\n"
            )
            return 1
        options.out.write_text(json.dumps(_inspect_all(nodes, requirements)))
    finally:
        ray.shutdown()
    return 0


def _join(address: str, deadline: float) -> None:
    """Join the cluster; its head accepts connections before it admits nodes."""
    while True:
        try:
            ray.init(address=address, log_to_driver=False, configure_logging=False)
        except ConnectionError:
            if time.monotonic() > deadline:
                raise
            time.sleep(POLL_S)
        else:
            return


def _wait(num_nodes: int, deadline: float) -> list[dict[str, Any]]:
    while True:
        listed: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
        nodes = [node for node in listed if node["Alive"]]
        if len(nodes) >= num_nodes or time.monotonic() > deadline:
            return nodes
        time.sleep(POLL_S)


def _inspect_all(
    nodes: list[dict[str, Any]], requirements: NodeRequirements
) -> list[dict[str, Any]]:
    task = ray.remote(_inspect)
    calls = [
        task.options(
            num_cpus=0,
            # Without a share in the GPUs Ray would hide them from the task.
            num_gpus=requirements.num_gpus,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            max_retries=0,
        ).remote(requirements.model_dump_json(), node["NodeManagerAddress"])
        for node in nodes
    ]
    results: list[dict[str, Any]] = ray.get(calls)
    return results


def _inspect(requirements: str, ip: str) -> dict[str, Any]:
    return check_node(NodeRequirements.model_validate_json(requirements), ip).model_dump(
        mode="json"
    )


if __name__ == "__main__":
    sys.exit(main())
