"""What a cluster's first node and the service leave for each other where no request can pass.

Under `runs/R/attempt-A/node/` of the blob store (`rundir.node_file`): the service writes
`plan.json` once and `stop.json` when it wants something; the node takes the plan with `taken.json`,
which can be written once only, then writes `alive.json` again and again and `end.json` at its end.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from trainer.contract.launch import Action, AttemptEnd

Nonce = Annotated[str, Field(min_length=16, max_length=64)]


class _Note(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class NodeTaken(_Note):
    """`taken.json`: which job carries the attempt; another one leaves."""

    nonce: Nonce


class NodeAlive(_Note):
    """`alive.json`: the job lives. Its clock is not trusted: what counts is that `beat` rises."""

    nonce: Nonce
    beat: Annotated[int, Field(ge=1)]
    at: datetime
    is_preparing: bool


class NodeEnd(_Note):
    """`end.json`: the trainer is gone."""

    nonce: Nonce
    end: AttemptEnd


class NodeStop(_Note):
    """`stop.json`: what to do with the trainer."""

    action: Action
