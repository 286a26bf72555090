"""What the calls of a run took and cost, as rows of its page."""

from collections.abc import Sequence

from nat.data_models.finetuning import BudgetConfig
from nat.data_models.llm_usage import Purpose, added
from nat.finetuning.budget import price
from nat.runs.records import EpochRecord, ValidationRecord

Row = tuple[str, str]
_PURPOSES: Sequence[tuple[Purpose, str]] = (
    ("rollout", "rollouts"),
    ("judge", "evaluators"),
    ("teacher", "the teacher"),
    ("training", "the server's updates"),
    ("checks", "their checks"),
)


def calls_rows(
    epochs: Sequence[EpochRecord], validations: Sequence[ValidationRecord], budget: BudgetConfig | None
) -> list[Row]:
    """Calls and tokens by purpose and LLM, each with its price, and what they cost together."""
    texts = []
    for where, records in (("training", epochs), ("held-out", validations)):
        for purpose, who in _PURPOSES:
            for name, used in added(each.usage.get(purpose, {}) for each in records).items():
                tokens = f"{used.prompt_tokens:,.0f} + {used.completion_tokens:,.0f} tokens"
                known = budget is not None and budget.prices.get(name)
                cost = f", {known.of(used, purpose):.4g}" if known else ""
                texts.append(f"{where}, {who}: {used.calls:,.0f} of {name}, {tokens}{cost}")
    rows = [("" if place else "Calls", text) for place, text in enumerate(texts)]
    if budget is not None:
        limit = "" if budget.limit is None else f" of {budget.limit:.4g}"
        rows.append(("Cost", f"{price([*epochs, *validations], budget.prices):.4g}{limit}"))
    return rows
