"""Count the tokens and seconds of an evaluation from its steps. Pure."""

from collections.abc import Sequence

from nat.data_models.evaluate_runtime import UsageStats, UsageStatsItem, UsageStatsLLM
from nat.data_models.evaluator import EvalInputItem
from nat.data_models.intermediate_step import IntermediateStep, IntermediateStepType

__all__ = ["UsageStats", "UsageStatsItem", "UsageStatsLLM", "usage_of"]


def usage_of(items: Sequence[EvalInputItem]) -> UsageStats:
    """The usage of each item, and the time from the first step of any item to the last step of any."""
    used = {str(item.id): _item_usage(item.trajectory) for item in items}
    timed = [usage for usage in used.values() if usage.max_timestamp > 0]
    begin = min((usage.min_timestamp for usage in timed), default=0.0)
    end = max((usage.max_timestamp for usage in timed), default=0.0)
    return UsageStats(min_timestamp=begin, max_timestamp=end, total_runtime=end - begin, usage_stats_items=used)


def _item_usage(steps: Sequence[IntermediateStep]) -> UsageStatsItem:
    if not steps:
        return UsageStatsItem()
    times = [step.event_timestamp for step in steps]
    answers = [step for step in steps if step.event_type is IntermediateStepType.LLM_END]
    per_llm: dict[str, UsageStatsLLM] = {}
    for step in answers:
        if step.usage_info is not None:
            so_far = per_llm.get(step.name or "", UsageStatsLLM())
            added = step.usage_info.token_usage.model_dump()
            per_llm[step.name or ""] = UsageStatsLLM(**{name: count + added[name] for name, count in so_far})
    return UsageStatsItem(
        usage_stats_per_llm=per_llm,
        total_tokens=sum(llm.total_tokens for llm in per_llm.values()),
        runtime=max(times) - min(times),
        min_timestamp=min(times),
        max_timestamp=max(times),
        llm_calls=len(answers),
    )
