"""The rows about calls and their price."""

from fakes.run_records import epoch_record, validation_record
from nat.data_models.finetuning import BudgetConfig
from nat.data_models.llm_usage import LLMUsage, PriceConfig
from nat.reports.run_page import calls_rows

USED = {"student": LLMUsage(calls=1500, prompt_tokens=40_000, completion_tokens=2_000)}
JUDGED = {"judge": LLMUsage(calls=10, prompt_tokens=1_000_000)}
TAUGHT = {"big": LLMUsage(calls=3, prompt_tokens=900, completion_tokens=3)}
EPOCHS = [
    epoch_record(0, usage={"rollout": USED}),
    epoch_record(1, usage={"rollout": USED, "judge": JUDGED, "teacher": TAUGHT}),
]
UPDATED = {"training": {"remote": LLMUsage(calls=2, prompt_tokens=5_000)}}
VALIDATIONS = [validation_record().model_copy(update={"usage": {"rollout": USED}})]


def test_calls_have_a_row_for_each_purpose_and_llm():
    """Epochs and validations apart; a price where there is one, and the sum against the limit."""
    budget = BudgetConfig(limit=10, prices={"judge": PriceConfig(prompt=2.5)})
    assert calls_rows(EPOCHS, VALIDATIONS, budget) == [
        ("Calls", "training, rollouts: 3,000 of student, 80,000 + 4,000 tokens"),
        ("", "training, evaluators: 10 of judge, 1,000,000 + 0 tokens, 2.5"),
        ("", "training, the teacher: 3 of big, 900 + 3 tokens"),
        ("", "held-out, rollouts: 1,500 of student, 40,000 + 2,000 tokens"),
        ("Cost", "2.5 of 10"),
    ]


def test_an_update_on_a_server_of_others_has_its_row():
    """With the price of tokens that are trained, not that of prompts."""
    budget = BudgetConfig(prices={"remote": PriceConfig(prompt=1, training=1000)})
    rows = calls_rows([epoch_record(0, usage=UPDATED)], [], budget)
    assert rows == [
        ("Calls", "training, the server's updates: 2 of remote, 5,000 + 0 tokens, 5"),
        ("Cost", "5"),
    ]
