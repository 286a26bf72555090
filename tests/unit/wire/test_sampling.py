"""A request's sampling fields decide whether its answer can be trained on."""

import pytest

from nat.wire.sampling import FORCED, read_sampling, replaced

UNTRAINABLE = [
    ({"temperature": 0}, "temperature=0"),
    ({"temperature": 0.001}, "temperature=0.001"),
    ({"temperature": "hot"}, "temperature=hot"),
    ({"temperature": float("nan")}, "temperature=nan"),
    ({"temperature": "0"}, "temperature=0"),
    ({"top_p": 0.9}, "top_p=0.9"),
    ({"top_p": "0.9"}, "top_p=0.9"),
    ({"top_k": 20}, "top_k=20"),
    ({"min_p": 0.05}, "min_p=0.05"),
    ({"frequency_penalty": -0.5}, "frequency_penalty=-0.5"),
    ({"presence_penalty": 0.5}, "presence_penalty=0.5"),
    ({"repetition_penalty": 1.1}, "repetition_penalty=1.1"),
    ({"logit_bias": {"50256": -100}}, "logit_bias=…"),
    ({"min_tokens": 4}, "min_tokens=4"),
    ({"best_of": 4}, "best_of=4"),
    ({"use_beam_search": True}, "use_beam_search=True"),
    ({"response_format": {"type": "json_object"}}, "response_format=…"),
    ({"tool_choice": "required"}, "tool_choice=required"),
    ({"guided_regex": "a+"}, "guided_regex=a+"),
    ({"regex": "a+"}, "regex=a+"),
    ({"json_schema": {"type": "object"}}, "json_schema=…"),
    ({"function_call": {"name": "move"}}, "function_call=…"),
    ({"repeat_penalty": 1.1}, "repeat_penalty=1.1"),
    ({"mirostat": 2}, "mirostat=2"),
    ({"custom_logit_processor": "abc"}, "custom_logit_processor=abc"),
    ({"temperature": 10**400}, "temperature=…"),
]


@pytest.mark.parametrize(("fields", "named"), UNTRAINABLE)
def test_fields_that_change_the_distribution_are_named(fields, named):
    """The name comes with the value that the agent wrote."""
    found = read_sampling({"model": "m", "messages": [], **fields})
    assert found.untrainable_by == (named,)
    assert not found.trainable


@pytest.mark.parametrize(
    ("fields", "temperature"),
    [
        ({}, 1),
        ({"temperature": None, "top_p": None, "logit_bias": None}, 1),
        ({"temperature": 0.4}, 0.4),
        ({"temperature": "0.7"}, 0.7),
        ({"temperature": 2}, 2),
        ({"top_p": 1.0, "top_k": -1, "min_p": 0.0, "frequency_penalty": 0, "logit_bias": {}, "best_of": 1}, 1),
        ({"top_k": 0, "repetition_penalty": "1.0"}, 1),
        ({"mirostat": 0, "tfs_z": 1.0, "logit_bias": [], "function_call": "auto"}, 1),
        ({"stop": ["x"], "seed": 4, "max_tokens": 3, "n": 2, "tool_choice": "auto", "ignore_eos": True}, 1),
        ({"response_format": {"type": "text"}}, 1),
    ],
)
def test_a_temperature_and_neutral_fields_are_trainable(fields, temperature):
    """Fields that change the end or the number of answers are trainable, too."""
    found = read_sampling(fields)
    assert (found.temperature, found.untrainable_by) == (temperature, ())


@pytest.mark.parametrize(("fields", "named"), UNTRAINABLE)
def test_replaced_sampling_is_trainable(fields, named):
    """Each set field gets its neutral value; the format of an answer stays the agent's."""
    found = read_sampling(fields | replaced(fields, 0.8))
    forced = named.split("=")[0] in FORCED
    assert found.temperature == 0.8
    assert found.untrainable_by == ((named,) if forced else ())
