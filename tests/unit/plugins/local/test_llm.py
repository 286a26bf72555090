"""The `local` LLM's options, as the backend gets them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from fakes.tiny_model import make_tiny_model
from nat.builder.workflow_builder import WorkflowBuilder
from nat.errors import BackendError, ConfigError, ModelUnavailable
from nat.plugins.local.llm import LocalModelConfig
from nat.registry.discovery import discover_components
from nat.wire.serving import handover, received


def options_of(**given):
    """What the backend's process reads for this configuration."""
    return received(handover(LocalModelConfig(model=Path("m"), **given).options(Path("out"), {})))


def test_vllms_options_reach_the_backend():
    """Also arguments that begin with dashes; the time limit is that of the LLM."""
    options = options_of(
        engine="vllm",
        vllm_command="/opt/vllm/bin/vllm serve",
        vllm_args="--gpu-memory-utilization 0.4 --seed 3",
        tensor_parallel=2,
        startup_timeout=77,
    )
    assert (options.engine, options.tensor_parallel, options.vllm_startup_timeout) == ("vllm", 2, 77)
    assert options.vllm_command == "/opt/vllm/bin/vllm serve"
    assert options.vllm_args == "--gpu-memory-utilization 0.4 --seed 3"


def test_a_server_at_a_url_may_need_a_key():
    """The option wins over the variable, which is for a server at a URL only."""
    environment = {"VLLM_API_KEY": "of-the-variable"}

    def key(**given):
        config = LocalModelConfig(model=Path("m"), engine="vllm", **given)
        found = received(handover(config.options(None, environment))).vllm_api_key
        return found and found.get_secret_value()

    assert key(vllm_url="http://127.0.0.1:8000", vllm_api_key="of-the-yaml") == "of-the-yaml"
    assert key(vllm_url="http://127.0.0.1:8000") == "of-the-variable"
    assert key() is None


@pytest.mark.parametrize(
    "given",
    [
        {"vllm_args": "--x"},
        {"vllm_url": "http://127.0.0.1:1"},
    ],
)
def test_options_without_effect_are_refused(given):
    """The message names the option and the engine."""
    with pytest.raises(ValidationError, match=f"{list(given)[-1]}: no effect with engine"):
        LocalModelConfig(model=Path("m"), **given)


def test_four_bits_reach_the_backend():
    """They are an option of `lora`, so that no YAML can ask for them without it."""
    options = options_of(lora={"rank": 4, "load_in_4bit": True})
    assert (options.lora_rank, options.load_in_4bit) == (4, True)
    assert not options_of(lora={"rank": 4}).load_in_4bit


def test_four_bits_are_refused_with_vllm():
    """The message says why, and what to do."""
    with pytest.raises(ValidationError, match=r"load_in_4bit: vLLM would sample .* use engine embedded"):
        LocalModelConfig(model=Path("m"), engine="vllm", lora={"load_in_4bit": True})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"vllm_command": "vllm 'serve"},
            "vllm_command\n.*cannot be split into words, as in a shell: No closing quotation",
        ),
        ({"vllm_args": '--x "'}, "vllm_args\n.*No closing quotation"),
        ({"vllm_url": "http://"}, "vllm_url\n.*match pattern"),
        ({"vllm_url": "127.0.0.1:8000"}, "vllm_url\n.*match pattern"),
    ],
)
def test_vllms_options_are_checked_before_anything_starts(given, message):
    """A wrong command, argument or address is an error of the configuration, at its key."""
    with pytest.raises(ValidationError, match=message):
        LocalModelConfig(model=Path("m"), engine="vllm", **given)


FORMAT = {"start_anchor": "\n", "fields": {"content": {"content": "text"}}}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"top_k": 20}, "top_k=20 is not supported by this server"),
        ({"sampler": {}}, "sampler: "),
        ({"temperature": -1}, "temperature: "),
        ({"chat_template_kwargs": {}, "n": 2}, "chat_template_kwargs, n: set by each request"),
    ],
)
def test_fields_that_the_backend_would_refuse_are_refused_in_the_configuration(fields, problem):
    """Else every request of the run would fail, with the same reason."""
    with pytest.raises(ValidationError, match=problem):
        LocalModelConfig(model=Path("m"), extra_body=fields)


@pytest.mark.slow
async def test_words_and_fields_of_the_yaml_are_sent(tmp_path):
    """The template gets the variables, and requests of agents the fields that they do not set themselves."""
    model = make_tiny_model(tmp_path / "model")
    template = "{% for m in messages %}{{ m.content }}{% endfor %}{{ 'calm' if calm else 'not' }}"
    (model / "chat_template.jinja").write_text(template)
    fields = {"seed": 5, "max_completion_tokens": 3, "ignore_eos": True}
    block = LocalModelConfig(
        model=model, device="cpu", threads=1, chat_template_kwargs={"calm": True}, extra_body=fields
    )
    discover_components()
    async with WorkflowBuilder() as builder:
        await builder.add_llm("student", block)
        client = await builder.get_llm("student", wrapper_type="openai")
        answers = [
            await client.chat.completions.create(
                model=client.model_name, messages=[{"role": "user", "content": "?"}], extra_body=own
            )
            for own in ({}, {}, {"max_completion_tokens": 4}, {"chat_template_kwargs": {"calm": 0, "other": 1}})
        ]
    first, again, own, not_calm = (answer.choices[0].message.content for answer in answers)
    assert [answer.usage.completion_tokens for answer in answers] == [3, 3, 4, 3]
    assert first == again == own[: len(first)]
    assert [answer.usage.prompt_tokens for answer in answers] == [5, 5, 5, 4]
    assert not_calm


@pytest.mark.slow
async def test_a_format_that_misreads_the_template_ends_the_start(tmp_path):
    """Before the weights are read, which are missing here."""
    model = make_tiny_model(tmp_path / "model")
    (model / "model.safetensors").unlink()
    block = LocalModelConfig(model=model, device="cpu", response_template=FORMAT)
    discover_components()
    async with WorkflowBuilder() as builder:
        with pytest.raises(BackendError, match="cannot start: response_template: the YAML: it misreads a call"):
            await builder.add_llm("student", block)


@pytest.mark.slow
async def test_a_model_whose_calls_cannot_be_read_is_warned_of_at_start(tmp_path, caplog):
    """The template shows the tools and drops calls, so nothing tells their format; one without tools is no problem."""
    model = make_tiny_model(tmp_path / "model")
    discover_components()
    for shown in ("", "{{ tools }}"):
        (model / "chat_template.jinja").write_text(shown + "{% for m in messages %}{{ m.content }}\n{% endfor %}")
        async with WorkflowBuilder() as builder:
            await builder.add_llm("student", LocalModelConfig(model=model, device="cpu", threads=1))
        warnings = [text for record in caplog.records if "tool calls may be lost" in (text := record.getMessage())]
        assert len(warnings) == bool(shown)
    assert "model: tool calls may be lost: no known format" in warnings[0]
    assert "set `response_template` of the LLM" in warnings[0]


async def test_a_revision_of_a_folder_is_refused(tmp_path):
    """Only a model of the Hub has revisions; the folder would be used as it is, whatever was named beside it."""
    block = LocalModelConfig(model=make_tiny_model(tmp_path / "model"), revision="v1")
    with pytest.raises(ModelUnavailable, match="is a folder, which has no revision 'v1'"):
        block.pinned()
    discover_components()
    async with WorkflowBuilder() as builder:
        with pytest.raises(ConfigError, match=r"llms\.student\.model: .* is a folder, which has no revision 'v1'"):
            await builder.add_llm("student", block)
    assert block.model_copy(update={"revision": None}).pinned().revision is None
