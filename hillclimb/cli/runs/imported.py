"""Prints an imported run."""

from __future__ import annotations

from hillclimb.cli.terminal.console import out, print_json, print_text
from hillclimb.client.client import Client
from hillclimb.protocol.payloads.runs import RunPayload


def print_imported(client: Client, run: RunPayload, *, as_json: bool) -> None:
    """Print the imported run, its evaluations, and what to do with it."""
    if as_json:
        print_json(run)
        return
    out.print(f"{run.id}  {run.status}  {client.url}/runs/{run.id}", soft_wrap=True)
    evals = client.evals(run.id).data
    places = ", ".join(f"step {each.step} ({each.decoding})" for each in evals)
    print_text(f"{run.name}: " + (places or "metrics alone, no outcomes"), style="dim")
