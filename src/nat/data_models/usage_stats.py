"""How many tokens and seconds an evaluation took, by item and by model."""

from pydantic import BaseModel


class UsageStatsLLM(BaseModel):
    """Tokens of one model, as its server counted them."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0


class UsageStatsItem(BaseModel):
    """What one rollout used."""

    usage_stats_per_llm: dict[str, UsageStatsLLM] = {}
    total_tokens: int = 0
    runtime: float = 0.0
    """Seconds from its first to its last step."""
    min_timestamp: float = 0.0
    max_timestamp: float = 0.0
    llm_calls: int = 0


class UsageStats(BaseModel):
    """What all rollouts of an evaluation used."""

    min_timestamp: float = 0.0
    max_timestamp: float = 0.0
    total_runtime: float = 0.0
    """Seconds from the first step of any rollout to the last step of any."""
    usage_stats_items: dict[str, UsageStatsItem] = {}
