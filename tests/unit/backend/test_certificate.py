"""The certificate of a folder: the verdict of loader, server and plan without its weights."""

import json
import shutil
from pathlib import Path

import pytest

from nat.backend.certificate import SHARE, certificate
from nat.plugins.local.llm import LocalModelConfig
from nat.sizing.certificate import Certificate

GB = 10**9
QWEN3_8B = {
    "model_type": "qwen3",
    "architectures": ["Qwen3ForCausalLM"],
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
}


@pytest.fixture
def folder(tiny_dir, tmp_path) -> Path:
    """A model of 8 billion weights without its weights."""
    made = shutil.copytree(tiny_dir("qwen3"), tmp_path / "model")
    (made / "model.safetensors").unlink()
    (made / "config.json").write_text(json.dumps(QWEN3_8B))
    return made


def judged(folder: Path, gigabytes: int | None = 24) -> Certificate:
    return certificate(folder, name="owner/name", gpu=None if gigabytes is None else gigabytes * GB)


def test_what_is_known_without_weights(folder):
    """Family, class, weights, context, words, layers and conversations."""
    found = judged(folder)
    assert (found.family, found.architecture, found.context) == ("qwen3", "Qwen3ForCausalLM", 40960)
    assert found.num_parameters == pytest.approx(8.19e9, rel=0.01)
    assert (found.layers.refusal, found.layers.untried) == (None, None)
    assert (found.words.refusal, found.words.writes_calls, found.words.misread) == (None, True, {})
    assert [talk.rows for talk in found.conversations] == [1, 1]
    assert found.problems == []


@pytest.mark.parametrize(
    ("card", "lora"),
    [(16, {"rank": 16, "load_in_4bit": True}), (24, {"rank": 16}), (80, {"rank": 16}), (400, None), (4, "nothing")],
)
def test_the_block_is_the_first_way_that_fits(folder, card: int, lora: object):
    """All weights if usual rows fit, then LoRA, then QLoRA; the block is one that our own configuration takes."""
    found = judged(folder, card)
    assert found.room == pytest.approx(SHARE * card * GB)
    full, adapters, four_bit = (way.memory for way in found.ways)
    assert four_bit.total < adapters.total < full.total
    if lora == "nothing":
        assert (found.block, len(found.problems)) == (None, 1)
        assert found.problems[0].startswith("it is not known to fit: QLoRA, rank 16 takes ")
        return
    block = LocalModelConfig.model_validate({key: value for key, value in found.block.items() if key != "_type"})
    assert (str(block.model), block.engine, block.dtype) == ("owner/name", "embedded", "bfloat16")
    assert found.block.get("lora") == lora
    assert 256 <= block.max_seq_length <= 32768


def test_each_step_is_told(folder):
    """What takes too long can be named."""
    steps: list[str] = []
    certificate(folder, name="owner/name", gpu=24 * GB, on_step=steps.append)
    assert steps == ["the configuration", "the tokenizer and the chat template", "a conversation", "the layers"]


def test_this_machine_and_a_revision(folder):
    """Without a GPU's size it is judged for this machine; the block pins the commit of the Hub."""
    found = certificate(folder, name="owner/name", revision="a" * 40, max_seq_length=512)
    assert (found.device, found.context) == ("this machine", 512)
    assert found.block is None or found.block["revision"] == "a" * 40


def test_a_configuration_that_cannot_be_read_ends_it(folder):
    """Nothing else is known then, and it is said once."""
    (folder / "config.json").write_text('{"model_type": "qwen3", ')
    found = judged(folder)
    assert (found.family, found.ways, found.words.format) == (None, (), None)
    [problem] = found.problems
    assert "not a valid JSON file" in problem


@pytest.mark.parametrize(
    ("lost", "said"), [("tokenizer.json", "has no tokenizer.json"), ("chat_template.jinja", "has no chat template")]
)
def test_words_that_are_missing_are_named(folder, lost: str, said: str):
    """Layers and memory are judged all the same."""
    (folder / lost).unlink()
    found = judged(folder)
    assert said in found.words.refusal
    assert (found.layers.refusal, found.conversations, len(found.ways)) == (None, (), 3)
    assert found.problems == [found.words.refusal]


def test_a_template_that_writes_no_calls_suits_agents_without_tools(folder):
    """Its questions alone are played, and the certificate warns of calls."""
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(template.replace("m.tool_calls or []", "[]"))
    found = judged(folder)
    assert "does not write calls" in found.words.warning
    assert next((talk.title, talk.rows) for talk in found.conversations) == ("a question", 1)
    assert found.problems == []


def test_layers_that_are_refused_are_named(folder):
    """What the loader would say after the download."""
    rope = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e6, "original_max_position_embeddings": 4096}
    (folder / "config.json").write_text(json.dumps({**QWEN3_8B, "rope_parameters": rope}))
    found = judged(folder)
    assert "changes its dynamic rotary embedding" in found.layers.refusal
    assert found.problems == [found.layers.refusal]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"hidden_act": "none such"}, "Qwen3ForCausalLM cannot be made from config.json: KeyError: 'none such'"),
        ({"num_attention_heads": 0}, "Qwen3ForCausalLM cannot be made from config.json"),
        ({"vocab_size": 0}, "it is not known to fit: the configuration lacks a size of its layers, or has one below 1"),
    ],
)
def test_a_configuration_of_no_model_does_not_fit(folder, wrong: dict[str, object], said: str):
    """What the class refuses, the loader would refuse after the download."""
    (folder / "config.json").write_text(json.dumps(QWEN3_8B | wrong))
    found = judged(folder)
    assert found.block is None or found.num_parameters is None
    assert said in "; ".join(found.problems)


def test_kernels_that_a_configuration_names_are_not_needed(folder):
    """The loader has attention of its own."""
    (folder / "config.json").write_text(json.dumps(QWEN3_8B | {"_attn_implementation": "owner/kernels"}))
    assert judged(folder).problems == []


def test_an_adapter_is_judged_by_its_base(folder, tmp_path):
    """The configuration is that of the base, which is in the adapter's own."""
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    config = {"peft_type": "LORA", "base_model_name_or_path": str(folder), "r": 8, "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(config))
    found = judged(adapter)
    assert (found.family, found.words.refusal, found.problems) == ("qwen3", None, [])
