"""What a run has cost, and whether its budget allows a further epoch."""

from collections.abc import Mapping, Sequence

from pydantic import ValidationError

from nat.data_models.finetuning import BudgetConfig
from nat.data_models.llm_usage import PriceConfig, price_of
from nat.runs.journal import Journal
from nat.runs.recorded_config import config_of, finetuning_value
from nat.runs.records import EpochRecord, ValidationRecord, epoch_number

Priced = EpochRecord | ValidationRecord


def price(records: Sequence[Priced], prices: Mapping[str, PriceConfig]) -> float:
    """Of the calls of epochs and validations."""
    return sum(price_of(record.usage, prices) for record in records)


def budget_of(journal: Journal) -> BudgetConfig | None:
    """The budget of a run, as recorded; None if there is none, or another release wrote it in another way."""
    recorded = finetuning_value(config_of(journal.info().config_text), "budget")
    try:
        return None if recorded is None else BudgetConfig.model_validate(recorded)
    except ValidationError:
        return None


def exceeded(
    budget: BudgetConfig,
    epochs: Sequence[EpochRecord],
    validations: Sequence[ValidationRecord],
    *,
    planned: int | None,
) -> str | None:
    """Why a further epoch, and the validation after it, might cost more than is left; None if they do not.

    They are taken to cost as much as the dearest so far; the first epoch as much as its `planned` rollouts would in the
    validation before it.
    """
    spent = price([*epochs, *validations], budget.prices)
    after = max((price([each], budget.prices) for each in validations), default=0.0)
    dearest = max((price([each], budget.prices) for each in epochs), default=None)
    if dearest is None:
        dearest = max((after / v.num_rollouts * (planned or 0) for v in validations if v.num_rollouts), default=0.0)
    if budget.limit is None or spent + dearest + after <= budget.limit:
        return None
    return (
        f"Ended by finetuning.budget: {spent:.4g} of {budget.limit:.4g} are spent, and epoch "
        f"{epoch_number(len(epochs))} with the validation after it would take about {dearest + after:.4g}"
    )
