"""The text of training rows, by the tokenizer that lies in the run's folder or beside its model, and each token."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp
from pathlib import Path

from nat.errors import JournalError, describe_error
from nat.hub import cached_folder
from nat.reports.overview import trained_llm
from nat.runs.journal import Journal
from nat.runs.recorded_config import config_of
from nat.wire.extras import install_hint, missing_packages
from nat.wire.serving import BEST_CHECKPOINT, CHECKPOINTS, NEWEST_CHECKPOINT
from nat.wire.training import TrainingRow

TOKENIZER = "tokenizer.json"
SHADES = 9
"""Shades from 0, as expected, to the strongest."""


class Decoder:
    """Token ids to text, without torch."""

    def __init__(self, path: Path) -> None:
        from tokenizers import Tokenizer

        self.path = path
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises nothing more specific
            hint = "copy the model's tokenizer.json again"
            raise JournalError(f"{path} cannot be read: {describe_error(error)}", hint=hint) from error

    def decode(self, ids: list[int]) -> str:
        """The text, special tokens included."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=False)
        return text

    def pieces(self, ids: list[int]) -> list[str | None]:
        """The text that each token adds; None if it ends inside a character, which a later token completes."""
        from tokenizers.decoders import DecodeStream

        stream = DecodeStream(skip_special_tokens=False)
        return [stream.step(self._tokenizer, each) for each in ids]


def tokenizer_of(journal: Journal) -> Decoder:
    """The tokenizer of the trained model; torch is not needed.

    Raises:
        JournalError: no tokenizer.json is found, or it cannot be read.

    """
    if missing := missing_packages(["tokenizers"]):
        raise JournalError(
            f"--tokens needs the package `{missing[0]}`, which is not installed", hint=install_hint("local")
        )
    folders = _folders(journal)
    path = next((folder / TOKENIZER for folder in folders if (folder / TOKENIZER).is_file()), None)
    if path is None:
        raise JournalError(
            f"no {TOKENIZER} in {' or '.join(map(str, folders))}, so token ids cannot be shown as text",
            hint="leave out --tokens, or put the model's folder back in its place",
        )
    return Decoder(path)


def _folders(journal: Journal) -> list[Path]:
    run_dir, block = journal.run_dir, trained_llm(config_of(journal.info().config_text))
    folders = [run_dir / "model", *(run_dir / CHECKPOINTS / name for name in (NEWEST_CHECKPOINT, BEST_CHECKPOINT))]
    if isinstance(model := block.get("model"), str):
        revision = block.get("revision")
        folders.append(Path(model))
        cached = cached_folder(model, None if revision is None else str(revision))
        folders += [cached] if cached else []
    return folders


def row_text(row: TrainingRow, tokenizer: Decoder) -> str:
    """The whole row as the model saw it, special tokens included, with what it sampled in brackets."""

    def text_of(begin: int, end: int | None) -> str:
        text = tokenizer.decode(row.token_ids[begin:end]) if row.token_ids[begin:end] else ""
        return text.replace("⟦", r"\u27e6").replace("⟧", r"\u27e7")

    text, begin = "", 0
    for span in row.spans:
        text += f"{text_of(begin, span.start)}⟦{text_of(span.start, span.stop)}⟧"
        begin = span.stop
    return text + text_of(begin, None)


@dataclass(frozen=True)
class Token:
    """One token, or several that are one character together."""

    text: str
    sampled: bool
    """True if it is in a span: the policy sampled it, or somebody wrote it to be learned."""
    logprob: float | None = None
    """The sampler's, in nats."""

    @property
    def title(self) -> str:
        """Its numbers."""
        if self.logprob is None:
            return "no log probability" if self.sampled else "prompt"
        return f"probability {exp(self.logprob):.3g}, log {self.logprob:.3f}"

    @property
    def shade(self) -> int | None:
        """From 0 to `SHADES`, the stronger the less probable it was; None of a prompt, and of what was not sampled."""
        return None if self.logprob is None else round(SHADES * (1 - exp(min(0.0, self.logprob))))


def row_tokens(row: TrainingRow, pieces: Sequence[str | None] | None, most: int) -> list[Token]:
    """The first tokens of a row; without `pieces`, the text of each token, their ids stand for them."""
    spans = {at: span for span in row.spans for at in range(span.start, min(span.stop, most))}
    found: list[Token] = []
    for at, token_id in enumerate(row.token_ids[:most]):
        text = f"{token_id} " if pieces is None else pieces[at]
        if text is not None:
            span = spans.get(at)
            logprob = span.logprobs[at - span.start] if span is not None and span.logprobs is not None else None
            found.append(Token(text, sampled=span is not None, logprob=logprob))
    return found
