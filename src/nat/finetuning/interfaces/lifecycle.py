"""What a component of a finetuning run answers to a plug-in that uses it otherwise than the guide."""

from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


def check_ready(component: object, ready: T | None, *, first: str = "initialize(run_config)") -> T:
    """Give `ready`; RuntimeError unless it has been set, which the method `first` does."""
    if ready is None:
        raise RuntimeError(f"{type(component).__name__} is not initialized: await {first} first")
    return ready


def refuse_attributes(component: type, instead: Mapping[str, str]) -> None:
    """Raise TypeError if a class has attributes of earlier releases, which would be ignored; `instead` says what has.

    Called when the class is defined.
    """
    if found := [f"{name} ({instead[name]})" for name in instead if name in component.__dict__]:
        raise TypeError(f"{component.__name__} has attributes that nobody reads any more: {', '.join(found)}")
