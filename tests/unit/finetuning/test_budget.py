"""What a run has cost, and whether a further epoch fits its budget."""

import pytest

from fakes.run_records import epoch_record, validation_record
from nat.data_models.finetuning import BudgetConfig
from nat.data_models.llm_usage import LLMUsage, PriceConfig
from nat.finetuning.budget import exceeded, price

PRICES = {"judge": PriceConfig(call=1.0)}


def usage(rollout=0, judge=0):
    return {"rollout": {"judge": LLMUsage(calls=rollout)}, "judge": {"judge": LLMUsage(calls=judge)}}


def epochs(*calls):
    return [epoch_record(number, usage=usage(judge=count)) for number, count in enumerate(calls)]


def validations(*calls, rollouts=10):
    records = [validation_record(number) for number in range(len(calls))]
    changes = [{"usage": usage(1, count - 1), "num_rollouts": rollouts} for count in calls]
    return [each.model_copy(update=change) for each, change in zip(records, changes, strict=True)]


def within(limit, done, held_out=(), planned=None):
    return exceeded(BudgetConfig(limit=limit, prices=PRICES), done, held_out, planned=planned) is None


def test_the_price_counts_both_purposes_and_validations():
    """Agents and evaluators may call the same LLM."""
    assert price([*epochs(3, 4), *validations(5)], PRICES) == 12


def test_tokens_that_a_server_trains_on_have_a_price_of_their_own():
    """Those of its checks are prompts; calls of an update have no price."""
    used = {"server": LLMUsage(calls=3, prompt_tokens=2_000_000)}
    prices = {"server": PriceConfig(prompt=1, completion=10, call=100, training=5)}
    assert price([epoch_record(0, usage={"training": used})], prices) == 10
    assert price([epoch_record(0, usage={"checks": used})], prices) == 302


@pytest.mark.parametrize(("limit", "fits"), [(17.5, True), (17.4, False)])
def test_a_further_epoch_costs_what_the_dearest_did(limit, fits):
    """3 + 5 are spent, and a third one takes 5 and a validation of 1.5, which two took before."""
    assert within(limit, epochs(3, 5), validations(1.5, 1.5)) is fits


@pytest.mark.parametrize(("limit", "fits"), [(24, True), (23, False)])
def test_the_first_epoch_costs_what_its_rollouts_would_in_the_validation(limit, fits):
    """10 rollouts took 2, so 100 take 20, and the validation after them 2."""
    assert within(limit, [], validations(2), planned=100) is fits


def test_without_a_limit_or_before_anything_is_known_nothing_is_exceeded():
    """The first epoch of a run without held-out examples is played whatever it costs."""
    assert within(None, epochs(10**9))
    assert within(1e-9, [])


def test_the_reason_has_its_numbers():
    """What was spent, the limit, and what the next epoch would take."""
    text = exceeded(BudgetConfig(limit=6, prices=PRICES), epochs(3), [], planned=None)
    assert text is None
    text = exceeded(BudgetConfig(limit=5, prices=PRICES), epochs(3), [], planned=None)
    assert "3 of 5 are spent, and epoch 2 with the validation after it would take about 3" in text
