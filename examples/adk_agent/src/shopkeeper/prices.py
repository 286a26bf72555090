"""The tool: a price list."""

from collections.abc import AsyncGenerator

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig

ITEMS = ("bread", "butter", "cheese", "coffee", "eggs", "honey", "milk", "rice", "salt", "tea")
HIGHEST = 5


def price_of(item: str) -> int:
    """The price of a thing; neighbours on the list differ, so the price must be looked up."""
    if item not in ITEMS:
        raise ValueError(f"there is no {item!r} in this shop")
    return 1 + ITEMS.index(item) * 3 % HIGHEST


class PriceListConfig(FunctionBaseConfig, name="price_list"):
    """Configuration of a tool that knows prices."""


@register_function(config_type=PriceListConfig)
async def price_list(_config: PriceListConfig, _builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """A plain function; the agent makes it a tool of ADK."""

    async def price(item: str) -> int:
        """The price of a thing."""
        return price_of(item)

    yield FunctionInfo.from_fn(price)
