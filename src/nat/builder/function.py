"""A function of the workflow: it converts its input, records its steps, and runs."""

from collections.abc import AsyncGenerator
from typing import Any

from pydantic import ValidationError

from nat.builder.context import Context
from nat.builder.conversion import GLOBAL_CONVERTER, TypeConverter, has_type
from nat.builder.function_info import FunctionInfo
from nat.data_models.function import EmptyFunctionConfig, FunctionBaseConfig
from nat.errors import WorkflowError, findings_of


class Function:
    """One input, one output or a stream; every call is a span of the intermediate steps.

    It runs the callables of its `info`, or what a subclass puts in place of `_ainvoke` and `_astream`.
    """

    def __init__(
        self,
        *,
        config: FunctionBaseConfig,
        info: FunctionInfo,
        instance_name: str | None = None,
    ) -> None:
        self.config = config
        self.info = info
        self.instance_name = instance_name or config.static_type() or type(config).__name__
        self.description = info.description
        self.input_type = info.input_type
        self.input_schema = info.input_schema
        self.single_output_type = info.single_output_type
        self.streaming_output_type = info.stream_output_type
        self.has_single_output = info.single_fn is not None
        self.has_streaming_output = True
        converter = TypeConverter(info.converters, parent=GLOBAL_CONVERTER)
        self.convert, self.try_convert = converter.convert, converter.try_convert

    def from_arguments(self, value: dict[str, Any]) -> Any:
        """The input made from named arguments; TypeError if they do not fit."""
        try:
            model = self.input_schema.model_validate(value)
        except ValidationError as error:
            why = "; ".join(map(str, findings_of(error)))
            raise TypeError(f"{sorted(value)} does not fit {self.input_schema.__name__}: {why}") from None
        if has_type(model, self.input_type):
            return model
        return getattr(model, next(iter(self.input_schema.model_fields)))

    async def ainvoke(self, value: Any, to_type: Any = None) -> Any:
        """Call the function; the result is converted to `to_type`."""
        if not self.has_single_output:
            raise WorkflowError(f"the function '{self.instance_name}' only streams", hint="call astream")
        converted = self._convert_input(value)
        with Context.get().push_active_function(self.instance_name, input_data=converted) as active:
            result = await self._ainvoke(converted)
            active.set_output(result)
        return result if to_type is None else self.convert(result, to_type)

    async def astream(self, value: Any, to_type: Any = None) -> AsyncGenerator[Any, None]:
        """Call the function and yield its chunks; a function with a single output yields one chunk."""
        converted = self._convert_input(value)
        chunks = []
        with Context.get().push_active_function(self.instance_name, input_data=converted) as active:
            async for chunk in self._astream(converted):
                chunks.append(chunk)
                yield chunk if to_type is None else self.convert(chunk, to_type)
            active.set_output(chunks)

    async def acall_invoke(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function with its own arguments."""
        return await self.ainvoke(self._pack(args, kwargs))

    async def acall_stream(self, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        """Stream from the function with its own arguments."""
        async for chunk in self.astream(self._pack(args, kwargs)):
            yield chunk

    async def _ainvoke(self, value: Any) -> Any:
        assert self.info.single_fn is not None, "ainvoke has checked it"
        return await self.info.single_fn(value)

    async def _astream(self, value: Any) -> AsyncGenerator[Any, None]:
        async for chunk in self.info.stream_fn(value):
            yield chunk

    def _pack(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs:
            return args[0]
        names = tuple(self.input_schema.model_fields)
        if len(args) > len(names):
            raise WorkflowError(f"'{self.instance_name}' takes {len(names)} arguments, but was given {len(args)}")
        return {**dict(zip(names, args, strict=False)), **kwargs}

    def _convert_input(self, value: Any) -> Any:
        if value is None or has_type(value, self.input_type):
            return value
        try:
            if isinstance(value, dict):
                return self.from_arguments(value)
            return self.convert(value, self.input_type)
        except TypeError as error:
            raise TypeError(f"input of the function '{self.instance_name}': {error}") from None


class LambdaFunction(Function):
    """A Function around the callables of a FunctionInfo."""

    @classmethod
    def from_info(
        cls, *, config: FunctionBaseConfig | None = None, info: FunctionInfo, instance_name: str | None = None
    ) -> "LambdaFunction":
        return cls(config=config or EmptyFunctionConfig(), info=info, instance_name=instance_name)
