"""What a component of a finetuning run answers to a plug-in that uses it otherwise than the guide."""

from typing import TypeVar

T = TypeVar("T")


def check_ready(component: object, ready: T | None, *, first: str = "initialize(run_config)") -> T:
    """Give `ready`; RuntimeError unless it has been set, which the method `first` does."""
    if ready is None:
        raise RuntimeError(f"{type(component).__name__} is not initialized: await {first} first")
    return ready
