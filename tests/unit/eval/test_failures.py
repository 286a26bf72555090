import math

import pytest

from nat.data_models.rollout_failure import CALLS_FAILED, NO_SCORE, RAISED, TIMED_OUT
from nat.data_models.score import score_problem
from nat.errors import EvaluationError
from nat.eval.failures import remedy_of
from nat.plugins.evaluators.llm_judge import parse_judgement


def refused_judgement() -> str:
    with pytest.raises(EvaluationError) as refused:
        parse_judgement('The text says {"score": 1}, and it is good.', "code")
    return str(refused.value)


@pytest.mark.parametrize(
    ("cause", "error", "remedy"),
    [
        (NO_SCORE, score_problem(None), "0 for one that is wrong"),
        (NO_SCORE, score_problem("good"), "turn words into one"),
        (NO_SCORE, score_problem(math.nan), "a division by zero"),
        (NO_SCORE, score_problem(1e308), "between 0 and 1"),
        (NO_SCORE, "KeyError: 'gold'", "Fix the evaluator"),
        (NO_SCORE, "evaluate_item returned 1.0, not an EvalOutputItem", "EvalOutputItem(id=item.id, score=…"),
        (NO_SCORE, "the evaluator returned [], not an EvalOutput", "eval_output_items=[…]"),
        (NO_SCORE, "AttributeError: 'NoneType' object has no attribute 'split'", "the workflow returned nothing"),
        (RAISED, "AttributeError: 'NoneType' object has no attribute 'split'", "Fix the workflow"),
        (NO_SCORE, None, "Fix the evaluator"),
        (NO_SCORE, refused_judgement(), "Let another model judge"),
        (
            RAISED,
            "400: response_format={'type': 'json_object'} is not supported",
            "leave `response_format`",
        ),
        (RAISED, "BadRequestError: tool_choice: Input should be 'none' or 'auto'", "leave `tool_choice`"),
        (
            RAISED,
            "400: this model's context has 512 tokens; the prompt has 5018",
            "longer than the model's",
        ),
        (RAISED, "BadRequestError: This model's maximum context length is 4096 tokens", "longer than the model's"),
        (RAISED, "BadRequestError: the model's tokenizer has no chat template, so", "chat_template.jinja"),
        (RAISED, "OpenAIError: Missing credentials. Please pass an `api_key`", "builder.get_llm"),
        (RAISED, "KeyError: 'city'", "Fix the workflow"),
        (TIMED_OUT, "TimeoutError: no answer within 5 s", "item_timeout"),
        (CALLS_FAILED, "Error code: 400 - this model's context has 128 tokens", "longer than the model's"),
        (CALLS_FAILED, "Error code: 400 - messages.0.role: unknown", "let the agent raise the errors of its calls"),
    ],
)
def test_each_error_has_its_own_remedy(cause, error, remedy):
    """A value of the evaluator, a refusal of the server and an exception of the agent have different remedies."""
    assert remedy in remedy_of(cause, error)
