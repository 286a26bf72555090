"""The agent frameworks that an LLM client can be made for."""

from enum import StrEnum


class LLMFrameworkEnum(StrEnum):
    """Names of `wrapper_type`; a plug-in may use any other string."""

    LANGCHAIN = "langchain"
    LLAMA_INDEX = "llama_index"
    CREWAI = "crewai"
    SEMANTIC_KERNEL = "semantic_kernel"
    AGNO = "agno"
    ADK = "adk"
    STRANDS = "strands"
    AUTOGEN = "autogen"
    OPENAI = "openai"
    OPENAI_SYNC = "openai_sync"
    OPENAI_AGENTS = "openai_agents"
    PYDANTIC_AI = "pydantic_ai"
    SMOLAGENTS = "smolagents"
