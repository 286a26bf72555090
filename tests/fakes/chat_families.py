"""Chat templates that behave like those of known model families, and tokenizations that no tokenizer produces."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tokenizers.pre_tokenizers import Metaspace

from fakes.tiny_model import tiny_tokenizer
from nat.backend.tokenizer import ChatTokenizer

_TEMPLATES = Path(__file__).parent / "chat_templates"


@dataclass(frozen=True)
class Family:
    """A template, its end-of-turn token, and the other tokens that it writes."""

    template: str
    end: str
    marks: tuple[str, ...]

    def tokenizer(self, *, prepend: str | None = None) -> ChatTokenizer:
        """Make a tokenizer; with `prepend`, a space belongs to the next word, as in SentencePiece."""
        hf = tiny_tokenizer()
        if prepend is not None:
            hf.backend_tokenizer.pre_tokenizer = Metaspace(replacement="Ġ", prepend_scheme=prepend)
        hf.add_special_tokens({"eos_token": self.end, "additional_special_tokens": list(self.marks)})
        hf.chat_template = (_TEMPLATES / f"{self.template}.jinja").read_text(encoding="utf-8")
        return ChatTokenizer(hf)


FAMILIES = {
    "qwen2.5": Family("chatml_tools", "<|im_end|>", ("<|im_start|>",)),
    "qwen3": Family("chatml_thinking", "<|im_end|>", ("<|im_start|>",)),
    "llama3": Family("headers_trim", "<|eot_id|>", ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>")),
    "mistral": Family("instructions", "</s>", ("<s>", "[INST]", "[/INST]")),
    "gemma": Family("turns_model", "<end_of_turn>", ("<bos>", "<start_of_turn>")),
    "deepseek-r1": Family("thinking_opened", "<|end|>", ("<|begin|>", "<|user|>", "<|assistant|>")),
}


def split_otherwise(tokenizer: ChatTokenizer, text: str, random: Random) -> list[int]:
    """Split a text at random places, so seldom where `encode` splits it."""
    ids: list[int] = []
    while text:
        size = random.randint(1, 4)
        ids += tokenizer.encode(text[:size])
        text = text[size:]
    return ids


def raw_text(tokenizer: ChatTokenizer, ids: Sequence[int]) -> str:
    """Decode tokens to text, special tokens included."""
    return str(tokenizer.hf.decode(list(ids), clean_up_tokenization_spaces=False))
