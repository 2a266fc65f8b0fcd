"""Asynchronous forms of the client's methods: each is the method itself, in a thread.

httpx's connection pool may be used by several threads, so one client serves all of them. A request
whose task is cancelled ends in its thread, and its response is dropped.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

import anyio.to_thread

P = ParamSpec("P")
R = TypeVar("R")
_END = object()


class AsyncResource(Protocol):
    """An object that has the methods in their synchronous form."""

    @property
    def synchronous(self) -> Any:
        """The object whose methods run in threads."""


class AsyncMethod(Generic[P, R]):
    """The asynchronous form of a method, with the same parameters and result."""

    def __init__(self, method: Callable[Concatenate[Any, P], R]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, resource: AsyncResource, owner: type) -> Callable[P, Awaitable[R]]:
        """Return the method of one object."""
        del owner

        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            bound = partial(self._method, resource.synchronous, *args, **kwargs)
            return await anyio.to_thread.run_sync(bound, abandon_on_cancel=True)

        return call


class AsyncIteration(Generic[P, R]):
    """The asynchronous form of a method that yields a file's bytes, with the same parameters."""

    def __init__(self, method: Callable[Concatenate[Any, P], Iterator[R]]) -> None:
        self._method = method
        self.__doc__ = method.__doc__

    def __get__(self, resource: AsyncResource, owner: type) -> Callable[P, AsyncIterator[R]]:
        """Return the method of one object."""
        del owner

        async def iterate(*args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
            values = self._method(resource.synchronous, *args, **kwargs)
            following = partial(next, values, cast("R", _END))
            while (value := await anyio.to_thread.run_sync(following)) is not _END:
                yield value

        return iterate
