"""Messages between a cluster's first node and the service through the blob store.

Used where the node cannot reach the API. Under `runs/R/attempt-A/node/` (`rundir.node_file`) the
service writes `plan.json` once and `stop.json` to stop the trainer. The node claims the plan with
`claim.json`, which can be written only once, then writes `alive.json` periodically and `end.json`
at its end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from hillclimb.protocol.launch import Action, EndReport, WireMessage

Nonce = Annotated[str, Field(min_length=16, max_length=64)]


class NodeClaim(WireMessage):
    """`claim.json`: the job that claimed the attempt; any other job exits."""

    nonce: Nonce


class NodeAlive(WireMessage):
    """`alive.json`: the job's heartbeat. Its clock is not trusted: only a rising `beat` counts."""

    nonce: Nonce
    beat: Annotated[int, Field(ge=1)]
    at: datetime
    is_preparing: bool


class NodeEnd(WireMessage):
    """`end.json`: the trainer has exited."""

    nonce: Nonce
    end: EndReport


class NodeStop(WireMessage):
    """`stop.json`: the service's command for the trainer."""

    action: Action
