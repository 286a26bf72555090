"""How many tokens a call cost."""

from pydantic import BaseModel


class TokenUsageBaseModel(BaseModel):
    """Counts as the server gave them; 0 where it gave none."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0


class UsageInfo(BaseModel):
    """Token counts of a step, with the calls they stand for."""

    token_usage: TokenUsageBaseModel = TokenUsageBaseModel()
    num_llm_calls: int = 0
    seconds_between_calls: int = 0
