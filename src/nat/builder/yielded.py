"""Check what a build function yielded, and give it the form that the builder hands out."""

from typing import Any, TypeVar

from nat.builder.function import Function, LambdaFunction
from nat.builder.function_info import FunctionInfo
from nat.data_models.function import FunctionBaseConfig
from nat.errors import WorkflowError

T = TypeVar("T")


def as_function(yielded: Any, path: str, name: str, config: FunctionBaseConfig) -> Function:
    """A Function under its key; a FunctionInfo or a plain callable is wrapped."""
    if isinstance(yielded, Function):
        yielded.instance_name = name
        return yielded
    if callable(yielded):
        yielded = FunctionInfo.from_fn(yielded)
    info = expected(yielded, FunctionInfo, path, also="a Function or a callable")
    return LambdaFunction.from_info(config=config, info=info, instance_name=name)


def expected(yielded: Any, wanted: type[T], path: str, *, also: str = "") -> T:
    """The yielded object if it is of the type, else WorkflowError."""
    if isinstance(yielded, wanted):
        return yielded
    alternatives = f"{wanted.__name__}, {also}" if also else wanted.__name__
    raise WorkflowError(f"{path}: its build function yielded {type(yielded).__name__}; wanted: {alternatives}")
