"""The tool: a price list."""

from collections.abc import AsyncGenerator

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig

ITEMS = ("bread", "butter", "cheese", "coffee", "eggs", "honey", "milk", "rice", "salt", "tea")
HIGHEST = 5


def price_of(item: str) -> int:
    """Neighbours on the list do not cost the same: to know a price, one has to ask."""
    if item not in ITEMS:
        raise ValueError(f"there is no {item!r} in this shop")
    return 1 + ITEMS.index(item) * 3 % HIGHEST


class PriceListConfig(FunctionBaseConfig, name="price_list"):
    """Knows what things cost."""


@register_function(config_type=PriceListConfig)
async def price_list(_config: PriceListConfig, _builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """A plain function; that it is a tool of ADK's agent is the agent's business."""

    async def price(item: str) -> int:
        """What a thing costs."""
        return price_of(item)

    yield FunctionInfo.from_fn(price)
