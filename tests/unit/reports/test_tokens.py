"""Training rows as text."""

import json

import pytest
from huggingface_hub import constants

from fakes.runs_on_disk import CONFIG, make_run
from fakes.tiny_model import tiny_tokenizer
from fakes.training_rows import row_of
from nat.errors import JournalError
from nat.reports.tokens import SHADES, row_text, row_tokens, tokenizer_of
from nat.runs.journal import reading
from nat.wire.training import Span, TrainingRow


def test_sampled_tokens_are_marked_in_the_whole_row(tmp_path):
    """The text is what the model saw, special tokens included; brackets of the model's own are escaped."""
    run_dir = make_run(tmp_path, "run-1")
    hf = tiny_tokenizer()
    hf.save_pretrained(run_dir / "model")
    prompt, answer = (hf(text)["input_ids"] for text in ("<|im_start|>user\nhé<|im_end|>", "⟦yes⟧<|im_end|>"))
    row = row_of(prompt + answer, [None] * len(prompt) + [-1.0] * len(answer))
    with reading(run_dir) as journal:
        tokenizer = tokenizer_of(journal)
    assert row_text(row, tokenizer) == r"<|im_start|>user" "\n" r"hé<|im_end|>⟦\u27e6yes\u27e7<|im_end|>⟧"


def test_without_a_tokenizer_the_error_says_where_it_looked(tmp_path):
    """In the run's folder and beside the model that the configuration names; a broken file is an error, too."""
    run_dir = make_run(tmp_path, "run-1")
    with reading(run_dir) as journal:
        with pytest.raises(JournalError, match=r"no tokenizer.json in .*run-1/model or .*models/small"):
            tokenizer_of(journal)
        (run_dir / "model").mkdir()
        (run_dir / "model" / "tokenizer.json").write_text(json.dumps({"version": "?"}))
        with pytest.raises(JournalError, match="cannot be read"):
            tokenizer_of(journal)


def test_the_tokenizer_of_a_model_on_the_hub_is_that_of_the_run(tmp_path, monkeypatch):
    """The cache may have a newer commit too, whose tokens may be others."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    commits = {name: name * 40 for name in ("a", "b")}
    cached = tmp_path / "cache" / "models--owner--tiny"
    for commit in commits.values():
        tiny_tokenizer().save_pretrained(cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commits["b"])
    student = {"_type": "local", "model": "owner/tiny", "revision": commits["a"]}
    run_dir = make_run(tmp_path, "run-1", config=CONFIG | {"llms": {"student": student}})
    with reading(run_dir) as journal:
        assert tokenizer_of(journal).path == cached / "snapshots" / commits["a"] / "tokenizer.json"


ROW = row_of([5, 6, 7, 8], [None, None, 0.0, -3.0])


def test_tokens_that_are_one_character_together_are_one():
    """Their text comes with the last of them, and so do the numbers; without texts, ids stand for them."""
    tokens = row_tokens(ROW, ["a", None, "é", "!"], 10)
    assert [(token.text, token.sampled) for token in tokens] == [("a", False), ("é", True), ("!", True)]
    assert [token.text for token in row_tokens(ROW, None, 3)] == ["5 ", "6 ", "7 "]


def test_the_less_probable_the_stronger_the_colour():
    """A token of probability 1 has the weakest; a prompt has none, nor a text that was written to be learned."""
    assert [token.shade for token in row_tokens(ROW, None, 10)] == [None, None, 0, SHADES]
    row = TrainingRow(token_ids=[1, 2], spans=[Span(start=1, stop=2)])
    assert [(token.shade, token.title) for token in row_tokens(row, None, 10)] == [
        (None, "prompt"),
        (None, "no log probability"),
    ]
    assert row_tokens(row_of([1, 2], [None, -0.5]), None, 9)[1].title == "probability 0.607, log -0.500"
