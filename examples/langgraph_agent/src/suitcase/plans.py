"""The first tool: travel plans with each person's destination."""

from collections.abc import AsyncGenerator

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig
from suitcase.forecast import TOWNS

PEOPLE = (
    *("ada", "anna", "ben", "bela", "boris", "carla", "clara", "dora", "emil", "erik", "felix", "gina"),
    *("greta", "hugo", "ida", "ines", "ivan", "jana", "karl", "kurt", "lena", "lisa", "max", "mia"),
    *("nora", "olga", "otto", "paul", "rita", "rosa", "sara", "tom", "ute", "vera", "willi", "zoe"),
)


def destination_of(person: str) -> str:
    """A person's destination; neighbours on the list differ, and each town has three visitors."""
    if person not in PEOPLE:
        raise ValueError(f"{person!r} has no travel plans")
    return TOWNS[PEOPLE.index(person) * 7 % len(TOWNS)]


class TravelPlansConfig(FunctionBaseConfig, name="travel_plans"):
    """Configuration of a tool that knows destinations."""


@register_function(config_type=TravelPlansConfig)
async def travel_plans(_config: TravelPlansConfig, _builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """A plain function; the agent makes it a tool of LangGraph."""

    async def destination(person: str) -> str:
        """The town to which a person travels."""
        return destination_of(person)

    yield FunctionInfo.from_fn(destination)
