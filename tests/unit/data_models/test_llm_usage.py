"""Calls and tokens by LLM, and their price."""

import pytest

from fakes.llm_steps import call, steps, user
from nat.data_models.intermediate_step import TokenUsageBaseModel, UsageInfo
from nat.data_models.llm_usage import LLMUsage, PriceConfig, price_of, usage_of_steps

SOME = LLMUsage(calls=2, prompt_tokens=300_000, completion_tokens=100_000)


def test_prices_are_those_of_a_million_tokens_and_of_a_call():
    """An LLM without a price is free."""
    prices = {"a": PriceConfig(prompt=1.0, completion=10.0, call=0.25)}
    used = {"rollout": {"a": SOME, "b": SOME}, "judge": {"a": LLMUsage(calls=4)}}
    assert price_of(used, prices) == pytest.approx(0.3 + 1.0 + 0.5 + 1.0)


def test_each_answer_counts_with_the_tokens_that_its_server_reports():
    """By the LLM's key in the YAML, else by the model's name; other steps are no calls."""
    made = steps(call([user("a")], "x"), call([user("b")], "y"))
    found = usage_of_steps(made)
    assert sum(used.calls for used in found.values()) == 2
    assert usage_of_steps([step for step in made if step.event_type != "LLM_END"]) == {}


@pytest.mark.parametrize("told", [-1, -(10**400), 10**400, 2**63])
def test_a_number_that_is_no_count_of_tokens_counts_as_none(told):
    """Servers report what they like, and a run goes on and can be read; what a true count is next to it stays."""
    usage = UsageInfo(token_usage=TokenUsageBaseModel(prompt_tokens=told, completion_tokens=7))
    (start, end) = steps(call([user("a")], "x"))
    found = usage_of_steps(
        [start, end.model_copy(update={"payload": end.payload.model_copy(update={"usage_info": usage})})]
    )
    assert list(found.values()) == [LLMUsage(calls=1, completion_tokens=7)]
