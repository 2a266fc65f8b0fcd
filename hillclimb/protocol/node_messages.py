"""Messages between a cluster's first node and the service through the blob store.

Used where the node cannot reach the API. Under `runs/R/attempt-A/node/` (`rundir.node_file`) the
service writes `plan.json` once and `stop.json` to stop the trainer. The node claims the plan with
`claim.json`, which can be written only once, then writes `alive.json` periodically and `end.json`
at its end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from hillclimb.protocol.launch import Action, EndReport
from hillclimb.spec.documented import Documented

Nonce = Annotated[str, Field(min_length=16, max_length=64)]


class _Note(Documented):
    model_config = ConfigDict(frozen=True, extra="forbid")


class NodeClaim(_Note):
    """`claim.json`: the job that claimed the attempt; any other job exits."""

    nonce: Nonce


class NodeAlive(_Note):
    """`alive.json`: the job's heartbeat. Its clock is not trusted: only a rising `beat` counts."""

    nonce: Nonce
    beat: Annotated[int, Field(ge=1)]
    at: datetime
    is_preparing: bool


class NodeEnd(_Note):
    """`end.json`: the trainer has exited."""

    nonce: Nonce
    end: EndReport


class NodeStop(_Note):
    """`stop.json`: the service's command for the trainer."""

    action: Action
