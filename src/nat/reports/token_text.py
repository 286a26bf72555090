"""The text of training rows, by the tokenizer that lies in the run's folder or beside its model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nat.errors import JournalError, ModelCodeStopped
from nat.hub import cached_folder
from nat.reports.overview import trained_llm
from nat.reports.rollouts import spans
from nat.runs.journal import Journal
from nat.runs.recorded_config import config_of
from nat.sandbox.process import Sandbox, SandboxRaised
from nat.wire.extras import install_hint, missing_packages
from nat.wire.serving import BEST_CHECKPOINT, CHECKPOINTS, NEWEST_CHECKPOINT
from nat.wire.training import TrainingRow

TOKENIZER = "tokenizer.json"


@dataclass(frozen=True)
class Decoder:
    """Token ids to text, in a child process: the file comes with the model."""

    path: Path
    sandbox: Sandbox

    def decode(self, ids: list[int]) -> str:
        """The text, special tokens included.

        Raises:
            JournalError: the file cannot be read, or takes too long.

        """
        text: str = self._call("decode", ids)
        return text

    def pieces(self, ids: list[int]) -> list[str | None]:
        """The text that each token adds; None if it ends inside a character, which a later token completes.

        Raises:
            JournalError: the file cannot be read, or takes too long.

        """
        found: list[str | None] = self._call("pieces", ids)
        return found

    def _call(self, task: str, ids: list[int]) -> Any:
        try:
            return self.sandbox.call(task, {"ids": ids}, what=f"the tokenizer in {self.path}", prepare=self._state)
        except (SandboxRaised, ModelCodeStopped) as error:
            message = error.message if isinstance(error, ModelCodeStopped) else f"{self.path} cannot be read: {error}"
            raise JournalError(message, hint="copy the model's tokenizer.json again") from error

    def _state(self) -> dict[str, str | bool]:
        try:
            return {"tokenizer": self.path.read_text(encoding="utf-8"), "split_special": False}
        except (OSError, ValueError) as error:
            raise SandboxRaised(str(error)) from error


def tokenizer_of(journal: Journal) -> Decoder:
    """The tokenizer of the trained model; torch is not needed.

    Raises:
        JournalError: no tokenizer.json is found, or it cannot be read.

    """
    if missing := missing_packages(["tokenizers", "jinja2"]):
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
    decoder = Decoder(path, Sandbox())
    decoder.decode([])
    return decoder


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
    texts = [(sampled, tokenizer.decode(ids)) for sampled, ids in spans(row)]
    return "".join(f"⟦{_escaped(text)}⟧" if sampled else _escaped(text) for sampled, text in texts)


def _escaped(text: str) -> str:
    return text.replace("⟦", r"\u27e6").replace("⟧", r"\u27e7")
