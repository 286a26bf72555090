"""Steps are sent over the wire and read back."""

from hypothesis import given
from hypothesis import strategies as st

from fakes.openai_replies import tool_call
from fakes.openai_server import OpenAIServer, Refuse, Say
from nat.builder.context import Context, ContextState
from nat.capture.context import CapturePolicy, capturing
from nat.capture.interning import Interner
from nat.data_models.intermediate_step import (
    IntermediateStep,
    IntermediateStepPayload,
    IntermediateStepType,
    InvocationNode,
    StreamEventData,
    TraceMetadata,
    TTCEventData,
)
from nat.plugins.llms.client import open_client
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.rollout.step_lines import decoded, encoded

PLACE = InvocationNode(function_id="f", function_name="agent", parent_id="w", parent_name="<workflow>")
TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def step(**fields) -> IntermediateStep:
    return IntermediateStep(
        parent_id="p", function_ancestry=PLACE, payload=IntermediateStepPayload.model_validate(fields)
    )


def there_and_back(steps: list[IntermediateStep]) -> tuple[list[IntermediateStep], list[bytes]]:
    lines = encoded(steps)
    return decoded(lines, Interner()), lines


async def captured() -> list[IntermediateStep]:
    """The steps of an agent with several turns, a tool, a failed attempt and two choices."""
    replies = [Say(None, (tool_call("look", {"at": "ö"}),)), Refuse(503), Say("done"), Say("a", others=(Say("b"),))]
    steps: list[IntermediateStep] = []
    state = ContextState()
    state.intermediate_step_manager.subscribe(steps.append)
    messages: list[dict] = [{"role": "user", "content": "line\u2028break"}]
    async with OpenAIServer(replies) as server:
        config = OpenAIModelConfig(model_name="m", base_url=server.base_url, max_retries=1)
        async with open_client(config, llm_name="student") as client:
            with state.active(), capturing(CapturePolicy(logprobs=True, token_ids=True, seed=3)):
                for turn in range(3):
                    with Context.get().push_active_function(f"turn {turn}", input_data=messages):
                        reply = await client.chat.completions.create(model="m", messages=messages, tools=TOOLS)
                    messages = [*messages, reply.choices[0].message.model_dump(exclude_none=True)]
                    messages.append({"role": "user", "content": f"turn {turn}"})
    return steps


async def test_captured_steps_come_back_equal():
    """Messages, tools, log probabilities, ids, function, span and times come back equal."""
    steps = await captured()
    found, _ = there_and_back(steps)
    assert [one.event_type for one in steps].count(IntermediateStepType.LLM_END) == 4
    assert found == steps
    assert [one.metadata for one in found] == [one.metadata for one in steps]


@given(JSON, JSON)
def test_any_json_comes_back_equal(value, other):
    """Steps that a workflow pushes may have any JSON, even without matching STARTs and ENDs."""
    steps = [
        step(event_type="LLM_START", UUID="a", data=StreamEventData(input=value), metadata={"x": other}),
        step(event_type="LLM_START", UUID="b", data=StreamEventData(input=value), metadata=TraceMetadata()),
        step(event_type="LLM_END", UUID="a", data=StreamEventData(output=value), tags=["t"]),
        step(event_type="CUSTOM_START", name="n", data=StreamEventData(input=other), metadata={"llm_call": None}),
        step(event_type="TTC_END", data=TTCEventData(turn_id="t", score=0.5, input=value)),
        step(event_type="LLM_START", UUID="c", data=StreamEventData(input=value)),
    ]
    found, _ = there_and_back(steps)
    assert found == steps
    assert [type(one.data) for one in found] == [type(one.data) for one in steps]
    assert [type(one.metadata) for one in found] == [type(one.metadata) for one in steps]
