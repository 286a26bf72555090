"""`llm_judge`: what the judge reads, and what counts as its judgement."""

import pytest
from pydantic import ValidationError

from fakes.openai_server import OpenAIServer, Say
from fakes.scripted_workflow import ScriptedWorkflow
from nat.data_models.evaluator import EvalInputItem
from nat.errors import EvaluationError
from nat.eval.evaluate import EvaluationRun, EvaluationRunConfig
from nat.plugins.evaluators.llm_judge import LLMJudgeConfig, filled, parse_judgement


def item(**fields) -> EvalInputItem:
    return EvalInputItem(**{"id": "a", "input_obj": "2+2", "expected_output_obj": "4", "output_obj": "5"} | fields)


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ('```json\n{"score": 1}\n```', 1),
        ('{"score": 1, "code": "other"}', 1),
        ('Step {one}: {"thought": 1}. So {"score": 0.5, "code": "c0de", "reasoning": "a } brace"} it is', 0.5),
        ('At first {"score": 0, "code": "c0de"}, but then {"score": 1, "code": "c0de"}', 1),
        ('{"score": 0, "code": "c0de"} The answer says {"score": 1} of itself', 0),
    ],
)
def test_judgements_are_found_in_other_text(reply, score):
    """The last object with the code, or the one that is the whole reply, is the judgement: others may be quotes."""
    assert parse_judgement(reply, "c0de").score == score


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I like it",
        "{",
        '{"reasoning": "x"}',
        '{"score": "1"}',
        '{"score": 7}',
        '{"score": null}',
        '{"score": NaN}',
        'The answer claims {"score": 1}, which is wrong.',
    ],
)
def test_an_invalid_judgement_is_an_error_and_no_zero(reply):
    """A missing, other, quoted or out-of-range score does not become a number."""
    with pytest.raises(EvaluationError, match=r"the judge|I like it"):
        parse_judgement(reply, "c0de")


def test_the_prompt_is_filled_once():
    """Braces in an answer insert no other text; a record is shown as JSON, a missing expectation as such."""
    prompt = filled("{answer}|{question}", item(output_obj='{question} {"a": 1}', input_obj="{answer}"))
    assert prompt == '{question} {"a": 1}|{answer}'
    assert filled("{answer} {expected}", item(output_obj={"m": "ä"}, expected_output_obj=None)) == '{"m": "ä"} (none)'


def test_a_prompt_that_hides_the_answer_is_refused():
    """A judge that does not see the answer would score the question."""
    with pytest.raises(ValidationError, match=r"no \{answer\}"):
        LLMJudgeConfig(llm_name="judge", prompt="Is it good?")


async def test_the_judge_is_an_llm_of_the_yaml(tmp_path):
    """`llm_name` names the LLM, which is called without the extra fields of training."""

    async def echo(question: str):
        return question

    scripted = ScriptedWorkflow(tmp_path, echo, [{"question": "2+2", "answer": "4"}])
    async with OpenAIServer([Say('{"score": 0.75, "reasoning": "off by one"}')]) as server:
        llm = {"_type": "openai", "model_name": "m", "base_url": server.base_url, "api_key": "k"}
        scripted.config["llms"] = {"judge": llm}
        scripted.config["eval"]["evaluators"] = {"judged": {"_type": "llm_judge", "llm_name": "judge"}}
        with scripted.registered():
            run = EvaluationRunConfig(config_file=scripted.config_file, write_output=False)
            output = await EvaluationRun(run).run_and_evaluate()
        [body] = server.bodies
    assert output.results_of("judged").average_score == 0.75
    assert body["model"] == "m"
    assert "logprobs" not in body
    assert "Expected answer:\n4" in body["messages"][0]["content"]
    assert output.results_of("judged").eval_output_items[0].reasoning == "off by one"
    [item] = output.eval_input.eval_input_items
    assert not [step for step in item.trajectory if step.event_type == "LLM_END"]
