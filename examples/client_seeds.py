"""Submits one spec under several seeds and follows all runs at once, asynchronously.

    hillclimb up &
    .venv/bin/python examples/client_seeds.py examples/booking.yaml 1 2 3

Submitting is repeatable: the idempotency key names file and seed, so a second start follows the
same runs instead of creating new ones. docs/client.md explains the asynchronous client.
"""

import asyncio
import sys
from pathlib import Path

from hillclimb.client.asynchronous.client import AsyncClient
from hillclimb.client.connection import find_connection
from hillclimb.client.errors import HillclimbError
from hillclimb.client.spec_file import read_spec


async def main(path, *seeds):
    async with AsyncClient(find_connection()) as client:
        runs = await asyncio.gather(*(submit(client, path, seed) for seed in seeds))
        ended = await asyncio.gather(*(follow(client, run.id) for run in runs))
    for seed, run in zip(seeds, ended, strict=True):
        print(f"seed {seed}: {run.id} {run.status}")


async def submit(client, path, seed):
    spec = read_spec(Path(path), (f"schedule.seed={seed}",))
    return await client.submit(spec, idempotency_key=f"{Path(path).name}-{seed}")


async def follow(client, run_id):
    async for event in client.follow(run_id):  # cancelling the task closes its stream
        if event.type == "step.completed":
            print(run_id, "step", event.data["step"])
    return await client.run(run_id)


if __name__ == "__main__":
    try:
        asyncio.run(main(*sys.argv[1:]))
    except HillclimbError as error:
        sys.exit(str(error))
