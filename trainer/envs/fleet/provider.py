"""The `fleet` provider: episodes on instances of a platform with Fleet's API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from hillclimb.environment.task import Task
from trainer.envs.fleet.env import FleetEnv, Platform
from trainer.envs.fleet.instances.instances import FleetInstances, LeaseOptions
from trainer.envs.fleet.instances.limiter import Limiter, Share
from trainer.envs.fleet.instances.request import InstanceRequests
from trainer.envs.fleet.wire.api import FleetAccount, FleetApi
from trainer.envs.fleet.wire.retry import CallRetry, Meter
from trainer.envs.fleet.wire.sizes import DEFAULT, Sizes
from trainer.errors import SpecError


class FleetProvider:
    """An `EnvProvider` whose episodes each hold one instance.

    Args:
        account: the platform and the key.
        env_keys: the environments served, in this order.
        terms: lifetime, heartbeat and tag of instances.
        max_instances: most instances of one environment at once.
        partial_reward: give a failed task the share of its passed checks.
        sizes: size limits of responses.
    """

    def __init__(
        self,
        account: FleetAccount,
        env_keys: Sequence[str],
        lease: LeaseOptions,
        *,
        max_instances: int,
        partial_reward: bool = False,
        sizes: Sizes = DEFAULT,
    ) -> None:
        self._account, self._lease = account, lease
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
        """Return the limiters of an environment's instances.

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
        retry = CallRetry(operation_s=self._lease.operation_s, meter=Meter(), load=share)
        return FleetEnv(self._connect_session(), task, retry, share)

    @asynccontextmanager
    async def slot(self, task: Task) -> AsyncIterator[None]:
        """Wait for a slot of an instance of the task's environment, and hold it."""
        async with self.share(task.env_key).slot():
            yield

    async def close(self) -> None:
        """Delete the attempt's remaining instances and close the connections.

        Raises:
            WireFault: the platform still lists some, or does not answer.
        """
        platform, self._platform = self._platform, None
        if platform is not None:
            try:
                await platform.instances.close()
            finally:
                await platform.api.close()

    def _connect_session(self) -> Platform:
        """Return the shared client, created on first use in the event loop that uses it."""
        if self._platform is None:
            asyncio.get_running_loop()
            api = FleetApi(self._account, self._sizes)
            self._platform = Platform(
                api=api,
                instances=FleetInstances(api, self._lease),
                requests=InstanceRequests(api),
                known_verifiers=set(),
                partial_reward=self._partial_reward,
                region=self._lease.region,
                sizes=self._sizes,
            )
        return self._platform
