"""The tool: a catalogue that knows on which shelf a book stands."""

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
"""How people ask for a book."""


def shelf_of(title: str) -> int:
    """Neighbours in the alphabet do not share a shelf: to know it, one has to look it up."""
    if title not in TITLES:
        raise ValueError(f"there is no book called {title!r}")
    return 1 + TITLES.index(title) * 7 % SHELVES


class CatalogueConfig(FunctionBaseConfig, name="catalogue"):
    """Finds a book's shelf."""


@register_function(config_type=CatalogueConfig)
async def catalogue(_config: CatalogueConfig, _builder: Builder) -> AsyncGenerator[FunctionInfo, None]:
    """A plain function; that it is a tool of LlamaIndex's agent is the agent's business."""

    async def find(title: str) -> str:
        """The number of the shelf on which a book stands."""
        return str(shelf_of(title))

    yield FunctionInfo.from_fn(find)
