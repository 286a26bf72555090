from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
    TokenUsageBaseModel,
    UsageInfo,
)
from nat.eval.usage_stats import usage_of


def answer(name: str, at: float, prompt: int, completion: int) -> IntermediateStep:
    usage = TokenUsageBaseModel(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
    payload = IntermediateStepPayload(
        event_type=IntermediateStepType.LLM_END, name=name, event_timestamp=at, usage_info=UsageInfo(token_usage=usage)
    )
    return IntermediateStep(
        parent_id="root", function_ancestry=InvocationNode(function_id="f", function_name="f"), payload=payload
    )


def item(item_id: str, *steps: IntermediateStep) -> EvalInputItem:
    return EvalInputItem(id=item_id, input_obj="", expected_output_obj=None, trajectory=list(steps))


def test_tokens_are_summed_by_item_and_model():
    """Tokens are counted for each model; an item's total is their sum."""
    usage = usage_of([item("a", answer("m", 1, 10, 2), answer("m", 3, 20, 3), answer("n", 4, 1, 1))])
    used = usage.usage_stats_items["a"]
    assert used.usage_stats_per_llm["m"].prompt_tokens == 30
    assert used.usage_stats_per_llm["m"].completion_tokens == 5
    assert (used.total_tokens, used.llm_calls, used.runtime) == (37, 3, 3)
