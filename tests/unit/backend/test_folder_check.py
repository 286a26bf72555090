"""A hostile model folder is refused at load, by name, within limits; others are as transformers has them."""

import json
import shutil

import pytest
from transformers import AutoTokenizer

from nat.backend.folder_check import check_folder
from nat.backend.model_loader import load_tokenizer
from nat.errors import ModelNotSupported

pytestmark = pytest.mark.usefixtures("forked_processes")

TEMPLATES = {
    "compiling takes forever": pytest.param("{{ 9**(9**9) }}", "takes more than", marks=pytest.mark.slow),
    "memory, for calls": ("{% if tools %}{{ ('a' * 2**33) | length }}{% endif %}", "needs more than 2 GiB of memory"),
}
GROWS = [
    {"type": "Replace", "pattern": {"String": letter}, "content": letter * 100} for letter in ("a", "e", "a", "e") * 4
]
BACKTRACKS = {"type": "Replace", "pattern": {"Regex": "(?:(?:a|aa)+)+$"}, "content": "b"}
TOKENIZERS = {
    "memory": {"normalizer": {"type": "Sequence", "normalizers": GROWS}},
    "a pattern that backtracks": {"normalizer": BACKTRACKS},
    "a decoder that grows": pytest.param({"decoder": {"type": "Sequence", "decoders": GROWS}}, marks=pytest.mark.slow),
}


@pytest.fixture
def folder(tiny_dir, tmp_path):
    return shutil.copytree(tiny_dir(), tmp_path / "model", ignore=shutil.ignore_patterns("*.safetensors"))


@pytest.mark.parametrize(("template", "limit"), TEMPLATES.values(), ids=TEMPLATES)
def test_a_hostile_template_is_refused(folder, template, limit):
    """The kernel ends the child at its limit; the message names the template and the folder."""
    (folder / "chat_template.jinja").write_text(template)
    with pytest.raises(ModelNotSupported, match=f"the chat template in {folder} ({limit})"):
        load_tokenizer(folder)


@pytest.mark.parametrize("parts", TOKENIZERS.values(), ids=TOKENIZERS)
def test_a_hostile_tokenizer_is_refused(folder, parts):
    """It hangs, crashes, or eats memory, on a text of repeated letters."""
    (folder / "config.json").unlink()  # by some families, transformers reads no more than the vocabulary
    content = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(content | parts))
    with pytest.raises(ModelNotSupported, match=f"the tokenizer in {folder} (takes|needs|crashes)"):
        load_tokenizer(folder)


def test_a_good_folder_is_as_transformers_has_it(folder):
    """Texts and ids are transformers' own."""
    ours, theirs = load_tokenizer(folder), AutoTokenizer.from_pretrained(folder)
    chat = [{"role": "user", "content": "Is 2 + 2 = 4?"}]
    text = theirs.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    assert ours.render_text(chat) == text
    assert ours.render_chat(chat) == theirs.encode(text, add_special_tokens=False)


def test_a_template_that_refuses_the_chat_is_none_that_hangs(folder):
    """Requests get its refusal."""
    (folder / "chat_template.jinja").write_text("{{ raise_exception('only for cats') }}")
    check_folder(folder)
