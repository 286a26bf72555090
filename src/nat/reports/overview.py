"""One run in a few facts, and the table of all runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import AwareDatetime, Field

from nat.errors import JournalError
from nat.finetuning.summary import phase_verdicts
from nat.reports.text import one_line, printable, table
from nat.runs.journal import Journal, reading
from nat.runs.liveness import ShownState, is_alive, shown_state
from nat.runs.recorded_config import config_of, finetuning_value, value_at
from nat.runs.records import PhaseVerdict, RunSummary, SparseRecord, Verdict, held_out_means

_MODEL_WIDTH = 40


class RunOverview(SparseRecord):
    """The facts of a run that a list shows; only `problem` is set for a run that cannot be read."""

    run_id: str
    folder: Path
    state: ShownState
    problem: str | None = None
    """Why the journal cannot be read."""
    message: str | None = None
    """Why the run failed or was canceled."""
    created_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None
    epochs: int = Field(default=0, ge=0)
    """Finished epochs."""
    num_epochs: int | None = None
    """Epochs that were planned."""
    phases: tuple[PhaseVerdict, ...] = ()
    """The phases of training that have begun."""
    verdict: Verdict | None = None
    before: float | None = None
    """Mean held-out score before training."""
    after: float | None = None
    """Mean held-out score of the last validation."""
    model: str | None = None
    """The model that was trained, as the configuration names it."""

    @property
    def progress(self) -> str:
        """How many epochs are done, in words."""
        phases = ", ".join(f"{phase.name} {phase.epochs}" for phase in self.phases)
        return f"epochs {self.epochs}/{self.num_epochs or '?'}" + (f" ({phases})" if phases else "")


def overviews(folders: Sequence[Path]) -> list[RunOverview]:
    """The runs in the same order; one that cannot be read does not hide the others."""
    found = []
    for folder in folders:
        try:
            with reading(folder) as journal:
                found.append(overview(journal))
        except JournalError as error:
            state = ShownState.UNREADABLE
            found.append(RunOverview(run_id=folder.name, folder=folder, state=state, problem=error.in_line))
    return found


def overview(journal: Journal) -> RunOverview:
    """The facts of one run."""
    info, summary, validations = journal.info(), journal.find(RunSummary), journal.validations()
    config, epochs = config_of(info.config_text), journal.num_epochs()
    means = held_out_means(validations)
    planned = [finetuning_value(config, "num_epochs"), *_of_phases(config, "num_epochs")]
    return RunOverview(
        run_id=info.run_id,
        folder=journal.run_dir,
        state=shown_state(info.state, alive=is_alive(journal.run_dir)),
        message=info.message,
        created_at=info.created_at,
        finished_at=info.finished_at,
        epochs=epochs,
        num_epochs=sum(count for count in planned if isinstance(count, int)) or None,
        phases=tuple(phase_verdicts(journal.phases(), validations, epochs)),
        verdict=summary.verdict if summary else None,
        before=means.pop(0, None),
        after=[*means.values()][-1] if means else None,
        model=trained_model(config),
    )


def trained_llms(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The blocks of the LLMs that the trainer adapter names, or else of the only one; none if it is not clear."""
    llms = value_at(config, "llms") or {}
    adapters = [value_at(config, "finetuning", "trainer_adapter"), *_of_phases(config, "trainer_adapter")]
    roles = [each for name in adapters for each in (value_at(config, "trainer_adapters", name, "roles") or {}).values()]
    adapters += [value_at(role, "adapter") for role in roles]
    names = [value_at(config, "trainer_adapters", each, "llm") for each in adapters]
    only = next(iter(llms)) if isinstance(llms, dict) and len(llms) == 1 else None
    names = [name for name in names if name] or [value_at(config, "finetuning", "target_model") or only]
    found = {str(name): value_at(config, "llms", name) for name in names}
    return {name: block for name, block in found.items() if isinstance(block, dict)}


def trained_llm(config: dict[str, Any]) -> dict[str, Any]:
    """The block of the trained LLM; empty if it is not known, or if several are that begin as different models."""
    blocks = list(trained_llms(config).values())
    return blocks[0] if blocks and all(block.get("model") == blocks[0].get("model") for block in blocks) else {}


def trained_model(config: dict[str, Any]) -> str | None:
    """The trained model's folder or name, with its revision if it has one; that of a GGUF file lies in a cache."""
    block = trained_llm(config)
    model, served = block.get("model"), block.get("model_name")
    name = served if served and (model is None or Path(str(model)).is_absolute()) else model
    revision = block.get("revision")
    return None if name is None else f"{name} at {str(revision)[:12]}" if revision else str(name)


def _of_phases(config: dict[str, Any], key: str) -> list[Any]:
    """A setting of each phase of training."""
    phases = finetuning_value(config, "phases")
    return [value_at(phase, key) for phase in phases if isinstance(phase, dict)] if isinstance(phases, list) else []


def list_page(runs: Sequence[RunOverview], root: Path | None) -> str:
    """The table of the runs, the newest first; `root` is where they were looked for, None for all of the user's."""
    if not runs:
        where = "" if root is None else f" below {root}"
        return f"No runs{where}. --output_dir names another place, the `finetuning.output_dir` of your runs."
    header = ("RUN", "STARTED (UTC)", "STATE", "EPOCHS", "HELD-OUT", "VERDICT", "MODEL")
    page = table(header, map(_cells, runs), left=len(header))
    problems = [f"{run.folder}: {run.problem}" for run in runs if run.problem]
    return printable("\n".join([page, *(["", *problems] if problems else [])]))


def _cells(run: RunOverview) -> tuple[str, ...]:
    return (
        one_line(run.run_id, 100),
        f"{run.created_at:%Y-%m-%d %H:%M}" if run.created_at else "",
        run.state,
        "" if run.problem else f"{run.epochs}/{run.num_epochs or '?'}",
        scores_text(run),
        run.verdict or "",
        one_line(run.model or "", _MODEL_WIDTH),
    )


def scores_text(run: RunOverview) -> str:
    """Held-out scores before and after, as far as they are known."""
    return " → ".join(f"{score:.3f}" for score in (run.before, run.after) if score is not None)
