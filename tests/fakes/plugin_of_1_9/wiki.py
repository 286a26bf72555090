"""A part that needs what this project does not have; the plug-in's other parts must work."""

from nat.plugin_api import RetrieverBaseConfig, register_retriever_provider


class WikiConfig(RetrieverBaseConfig, name="wiki"):
    """A retriever."""


@register_retriever_provider(config_type=WikiConfig)
async def wiki(config, builder):
    yield None
