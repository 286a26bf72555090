"""One example is played with a script as the model, before a model is loaded; agent and score are functions."""

import sys

import pytest

from nat.config import parse_config
from nat.data_models.evaluator import EvalInputItem
from nat.errors import NatError
from nat.eval.rehearsal import rehearse
from nat.registry.catalog import pushed_catalog

AGENT = """
import json


async def answer(question: str, llm):
    messages = [{"role": "user", "content": question}]
    return (await llm.chat.completions.create(model=llm.model_name, messages=messages)).choices[0].message.content


async def wants_json(question, llm):
    return json.loads(await answer(question, llm))["city"]


def blocks(question, llm):
    return llm.chat.completions.create(model=llm.model_name, messages=[]).choices[0].message.content


def quiet(question, llm):
    return "Paris"


def right(item, output):
    return output == item.expected_output_obj


async def misspelt(item, output):
    return item.expected_output == output


def as_text(item, output):
    return "0.5"
"""


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    """A folder with agents and scores; no model is there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "rehearsed.py").write_text(AGENT)
    with pushed_catalog():
        yield
    sys.modules.pop("rehearsed", None)


async def notes(agent="answer", score="right", *, question="Capital of France?", expected="Paris", **client):
    tree = {
        "llms": {"student": {"_type": "local", "model": "./nowhere"}},
        "workflow": {"_type": "python", "function": f"rehearsed.py:{agent}", "llm": "student", **client},
        "eval": {"evaluators": {"score": {"_type": "python", "function": f"rehearsed:{score}"}}},
    }
    item = EvalInputItem(id="a", input_obj=question, expected_output_obj=expected)
    return await rehearse(parse_config(tree), item)


@pytest.mark.parametrize("framework", ["openai", "openai_sync"])
async def test_a_project_without_mistakes(framework):
    """Agent and score may be async or block; the script says the expected answer, which scores."""
    assert await notes({"openai": "answer", "openai_sync": "blocks"}[framework], framework=framework) == []


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"question": ["Capital of France?"]}, r"failed on the example 'a': .*cannot be converted to str"),
        ({"agent": "right"}, "failed on the example 'a': AttributeError"),
        ({"score": "misspelt"}, "eval.evaluators.score: the answer 'Paris' has no score: AttributeError"),
    ],
)
async def test_a_certain_mistake_is_an_error(given, message):
    """What fails before a model is asked, and a right answer without a score, is no fault of the script."""
    with pytest.raises(NatError, match=message):
        await notes(**given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"agent": "quiet"}, "asked no model of this file"),
        ({"agent": "wants_json"}, "JSONDecodeError"),
        ({"score": "as_text"}, "not a number; give float"),
    ],
)
async def test_what_may_be_a_mistake_is_a_note(given, words):
    """A client of the agent's own, an answer in another form than the script's, a score for a reward of one's own."""
    [note] = await notes(**given)
    assert words in note
