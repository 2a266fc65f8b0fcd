"""The `fleet` provider: episodes on the instances of a platform that speaks Fleet's contract."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from trainer.envs.fleet.api import Account, FleetApi
from trainer.envs.fleet.env import FleetEnv, Platform
from trainer.envs.fleet.instances import Instances, Terms
from trainer.envs.fleet.limiter import Limiter, Share
from trainer.envs.fleet.persistence import Meter, Persistence
from trainer.envs.fleet.sizes import DEFAULT, Sizes
from trainer.envs.fleet.wishes import Wishes
from trainer.errors import SpecError
from trainer.types import Task


class FleetProvider:
    """An `EnvProvider` whose episodes each hold one instance.

    Args:
        account: the platform and the key.
        env_keys: the environments served, in this order.
        terms: how instances are held.
        max_instances: of one environment at once, at the most.
        partial_reward: give a failed task the share of its checks that passed.
        sizes: how much of an answer is taken.
    """

    def __init__(
        self,
        account: Account,
        env_keys: Sequence[str],
        terms: Terms,
        *,
        max_instances: int,
        partial_reward: bool = False,
        sizes: Sizes = DEFAULT,
    ) -> None:
        self._account, self._terms = account, terms
        self._env_keys = tuple(env_keys)
        self._partial_reward = partial_reward
        self._sizes = sizes
        self.account_limiter = Limiter(max_instances * len(self._env_keys))
        self._shares = {
            key: Share(Limiter(max_instances), self.account_limiter) for key in env_keys
        }
        self._platform: Platform | None = None

    @property
    def env_keys(self) -> tuple[str, ...]:
        """The environments served."""
        return self._env_keys

    def share(self, env_key: str) -> Share:
        """Return what bounds an environment's instances.

        Raises:
            SpecError: the environment is not served.
        """
        if env_key not in self._shares:
            raise SpecError(f"{env_key} is not among the served environments")
        return self._shares[env_key]

    def make(self, task: Task) -> FleetEnv:
        """Return a fresh episode.

        Raises:
            SpecError: the task's environment is not served.
        """
        share = self.share(task.env_key)
        persistence = Persistence(operation_s=self._terms.operation_s, meter=Meter(), load=share)
        return FleetEnv(self._connected(), task, persistence, share)

    @asynccontextmanager
    async def slot(self, task: Task) -> AsyncIterator[None]:
        """Wait until the task's environment can hold another instance; leave a place for it."""
        async with self.share(task.env_key).slot():
            yield

    async def close(self) -> None:
        """Delete what is left of the attempt's instances and close the connections.

        Raises:
            WireFault: the platform still lists some, or does not answer.
        """
        platform, self._platform = self._platform, None
        if platform is not None:
            try:
                await platform.instances.close()
            finally:
                await platform.api.close()

    def _connected(self) -> Platform:
        """Make the client on first use, in the event loop that uses it."""
        if self._platform is None:
            asyncio.get_running_loop()
            api = FleetApi(self._account, self._sizes)
            self._platform = Platform(
                api=api,
                instances=Instances(api, self._terms),
                wishes=Wishes(api),
                known_verifiers=set(),
                partial_reward=self._partial_reward,
                region=self._terms.region,
                sizes=self._sizes,
            )
        return self._platform
