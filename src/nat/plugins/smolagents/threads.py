"""A pool of threads that keeps the context variables of whoever submits, so that calls find their rollout."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class ContextThreadPool(ThreadPoolExecutor):
    """Each call gets a copy of the context that it was submitted in."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """The pool's `submit`."""
        context = copy_context()
        return super().submit(lambda: context.run(fn, *args, **kwargs))
