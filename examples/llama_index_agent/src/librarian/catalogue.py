"""The tool: a catalogue with the shelf of each book."""

from collections.abc import AsyncGenerator

from nat.builder.builder import Builder
from nat.builder.function_info import FunctionInfo
from nat.cli.register_workflow import register_function
from nat.data_models.function import FunctionBaseConfig

TITLES = (
    *("candide", "dracula", "dune", "emma", "faust", "hamlet"),
    *("ivanhoe", "kim", "macbeth", "momo", "rebecca", "ulysses"),
)
SHELVES = 9
QUESTIONS = ("where is", "find", "shelf of")
"""Wordings of a question for a book."""


def shelf_of(title: str) -> int:
    """The shelf of a book; neighbours in the alphabet differ, so it must be looked up."""
    if title not in TITLES:
        raise ValueError(f"there is no book called {title!r}")
    return 1 + TITLES.index(title) * 7 % SHELVES


class CatalogueConfig(FunctionBaseConfig, name="catalogue"):
    """Configuration of a tool that finds a book's shelf."""


@register_function(config_type=CatalogueConfig)
async def catalogue(_config: CatalogueConfig, _builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """A plain function; the agent makes it a tool of LlamaIndex."""

    async def find(title: str) -> str:
        """The number of a book's shelf."""
        return str(shelf_of(title))

    yield FunctionInfo.from_fn(find)
