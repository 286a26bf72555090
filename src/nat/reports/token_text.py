"""The text of training rows, by the tokenizer that lies in the run's folder or beside its model."""

from pathlib import Path
from typing import TYPE_CHECKING

from nat.errors import JournalError, describe_error
from nat.hub import cached_folder
from nat.reports.overview import trained_llm
from nat.reports.rollouts import spans
from nat.runs.journal import Journal
from nat.runs.recorded_config import config_of
from nat.wire.extras import install_hint, missing_packages
from nat.wire.serving import BEST_CHECKPOINT, CHECKPOINTS, NEWEST_CHECKPOINT
from nat.wire.training import TrainingRow

if TYPE_CHECKING:  # part of the extra `local`
    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"


def tokenizer_of(journal: Journal) -> "Tokenizer":
    """The tokenizer of the trained model; torch is not needed.

    Raises:
        JournalError: no tokenizer.json is found, or it cannot be read.

    """
    if missing_packages(["tokenizers"]):
        raise JournalError(
            "--tokens needs the package `tokenizers`, which is not installed", hint=install_hint("local")
        )
    from tokenizers import Tokenizer  # noqa: PLC0415 - part of the extra `local`

    folders = _folders(journal)
    path = next((folder / TOKENIZER for folder in folders if (folder / TOKENIZER).is_file()), None)
    if path is None:
        raise JournalError(
            f"no {TOKENIZER} in {' or '.join(map(str, folders))}, so token ids cannot be shown as text",
            hint="leave out --tokens, or put the model's folder back in its place",
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers raises nothing more specific
        raise JournalError(
            f"{path} cannot be read: {describe_error(error)}", hint="copy the model's tokenizer.json again"
        ) from error


def _folders(journal: Journal) -> list[Path]:
    run_dir, block = journal.run_dir, trained_llm(config_of(journal.info().config_text))
    folders = [run_dir / "model", *(run_dir / CHECKPOINTS / name for name in (NEWEST_CHECKPOINT, BEST_CHECKPOINT))]
    if isinstance(model := block.get("model"), str):
        revision = block.get("revision")
        folders.append(Path(model))
        cached = cached_folder(model, None if revision is None else str(revision))
        folders += [cached] if cached else []
    return folders


def row_text(row: TrainingRow, tokenizer: "Tokenizer") -> str:
    """The whole row as the model saw it, special tokens included, with what it sampled in brackets."""
    texts = [(sampled, tokenizer.decode(ids, skip_special_tokens=False)) for sampled, ids in spans(row)]
    return "".join(f"⟦{_escaped(text)}⟧" if sampled else _escaped(text) for sampled, text in texts)


def _escaped(text: str) -> str:
    return text.replace("⟦", r"\u27e6").replace("⟧", r"\u27e7")
