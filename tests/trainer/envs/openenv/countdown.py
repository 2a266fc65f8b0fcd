"""An OpenEnv server with one pydantic action, which misbehaves as its reset arguments say.

Count down to 0 in steps of 1 to 3. Two sessions at once, and only for those who know the word.
"""

import os
import time
from typing import Any, Literal

from fastapi import Response
from openenv.core.env_server import Action, Environment, Observation, State, create_app
from pydantic import Field

TOKEN = "Bearer countdown"


class CountdownAction(Action):
    """Take some away."""

    take: int = Field(ge=1, le=3, description="How many.")
    voice: Literal["loud", "quiet"] = "quiet"


class Left(Observation):
    left: int
    hint: str | None = None


class Countdown(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **how: Any) -> Left:
        self.left, self.wrong = how.get("start", 3), how.get("wrong")
        self.said = "y" * how["talk"] if "talk" in how else None
        self.rewards = list(how.get("rewards", ()))
        self.kept = State.model_validate({"reward": how.get("state")})
        if self.wrong == "start":
            raise RuntimeError("the backend is down")
        first = self.rewards.pop(0) if self.rewards else None
        hint = f"seed {seed}" + "x" * how.get("padding", 0)
        return Left(left=self.left, hint=hint, reward=first, done=self.wrong == "over")

    def step(self, action: CountdownAction, timeout_s: float | None = None, **_: Any) -> Left:
        if self.wrong == "crash":
            os._exit(1)
        if self.wrong == "hang":
            time.sleep(1.0)
        if self.wrong == "bug":
            raise RuntimeError("the backend is down")
        if self.wrong == "nonsense":
            return Left.model_validate({"left": "many"})
        self.left -= action.take
        done = self.left <= 0
        if self.wrong == "no reward":
            return Left(left=self.left, done=done)
        if self.rewards:
            return Left(left=self.left, reward=self.rewards.pop(0), done=done)
        reward = float(self.left == 0) if done else None
        return Left(left=self.left, hint=self.said, reward=reward, done=done)

    @property
    def state(self) -> State:
        return self.kept


class Guarded:
    """Lets nobody in without the word."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] in ("http", "websocket"):
            headers = dict(scope["headers"])
            if headers.get(b"authorization") != TOKEN.encode():
                if scope["type"] == "websocket":
                    await receive()
                    await send({"type": "websocket.close", "code": 1008})
                    return
                await Response(status_code=401)(scope, receive, send)
                return
        await self.app(scope, receive, send)


app = Guarded(create_app(Countdown, CountdownAction, Left, max_concurrent_envs=2))
