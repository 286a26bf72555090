"""Compute in a thread that ends.

OpenMP keeps helpers for each thread that computed. Those of the main thread would make the model thread's sleep between
two operations, since there would be more of them than cores; those of a thread that has ended are gone.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import torch

T = TypeVar("T")


def in_ended_thread(function: Callable[[], T]) -> T:
    """The result of `function`, computed with as many helpers as this thread would use."""
    threads = partial(torch.set_num_threads, torch.get_num_threads())
    with ThreadPoolExecutor(1, "ends", initializer=threads) as thread:
        return thread.submit(function).result()
