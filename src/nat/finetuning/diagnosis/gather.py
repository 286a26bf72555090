"""Read what the diagnosis needs from a run's journal."""

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from nat.data_models.finetuning import GuardsConfig
from nat.finetuning.diagnosis.catalogue import Diagnosis, diagnosis_of
from nat.finetuning.diagnosis.facts import Facts
from nat.finetuning.diagnosis.window import Window
from nat.finetuning.rollout_statistics import unseen_words
from nat.runs.journal import Journal, reading
from nat.runs.liveness import is_alive
from nat.runs.recorded_config import config_of, finetuning_value, value_at
from nat.runs.records import EpochRecord, Finding, Phase, RunState, TrainingPhase, ValidationRecord
from nat.runs.rollouts import RolloutRecord

logger = logging.getLogger(__name__)

_OF_PROMPT = re.compile("prompt|system|instruction")
"""In the key of a text that is meant for the model."""
_FILLED_IN = re.compile(r"\{[^{}]*\}")
_SENTENCES = 64
"""Tokens of an answer of a few sentences; twice a limit that cuts off all answers may still do so."""
_LEAST = 15
"""Characters of a part of a prompt by which it is known."""

MOST_READ = 2000
"""Rollouts of an epoch that are read whole: a share over so many has a standard error of at most 1.1 %."""


MOST_EPOCHS = 500
"""Epochs by which a run that goes on is judged, so that memory and time do not grow with it; its end judges all."""


async def findings_of(run_dir: Path, *, ended: bool) -> Sequence[Finding]:
    """The causes that the run's journal shows, read beside the event loop; none if it cannot be judged.

    Of a run that goes on, those of the last `MOST_EPOCHS` epochs of its current phase.
    """

    def read() -> Sequence[Finding]:
        with reading(run_dir) as journal:
            return _findings(journal, ended=ended)

    try:
        return await asyncio.to_thread(read)
    except Exception:
        logger.warning("the run could not be diagnosed", exc_info=True)
        return []


def findings_in(journal: Journal) -> Sequence[Finding]:
    """The causes that the summary of a run has; without one, those that its records show."""
    if (summary := journal.summary()) is not None:
        return summary.causes
    state = journal.info().state
    return _findings(journal, ended=state is not RunState.RUNNING or not is_alive(journal.run_dir))


def _findings(journal: Journal, *, ended: bool) -> Sequence[Finding]:
    if not ended:
        first = max([journal.num_epochs() - MOST_EPOCHS, *(phase.first_epoch for phase in journal.phases()[-1:])])
        return diagnose_run(journal, ended=False, first=max(0, first)).findings
    if phases := diagnose_phases(journal, ended=True):
        found = [_named(finding, phase) for phase, diagnosis in phases for finding in diagnosis.findings]
        return sorted(found, key=lambda finding: -finding.share)
    return diagnose_run(journal, ended=True).findings


def diagnose_phases(journal: Journal, *, ended: bool) -> list[tuple[TrainingPhase, Diagnosis]]:
    """Judge each phase of training by itself, since their rewards measure different things; empty without phases."""
    phases = journal.phases()
    ends = [*(phase.first_epoch for phase in phases[1:]), None]
    return [
        (phase, diagnose_run(journal, ended=ended or end is not None, first=phase.first_epoch, end=end))
        for phase, end in zip(phases, ends, strict=False)
    ]


def _named(finding: Finding, phase: TrainingPhase) -> Finding:
    return finding.model_copy(update={"title": f"Phase {phase.name}: {finding.title}"})


def diagnose_run(journal: Journal, *, ended: bool, first: int = 0, end: int | None = None) -> Diagnosis:
    """Judge the run as far as it is recorded; one that has not `ended` cannot be too short.

    With `first` and `end`, judge these epochs, and the validations before, between and after them.
    """
    done = journal.num_epochs() if end is None else end

    def inside(epoch: int) -> bool:
        return first <= epoch and (end is None or epoch < end)

    epochs = [epoch for epoch in journal.each_epoch(first) if inside(epoch.epoch)]
    validations = [record for record in journal.each_validation(first) if inside(record.epoch) or record.epoch == end]
    unfinished = _some_rollouts(journal, done) if end is None else []
    last = unfinished or (_some_rollouts(journal, done - 1) if epochs else [])
    unseen, usual = _unseen(journal, validations, first)
    training: Mapping[str, Any] = next(
        (job.training for job in journal.each_job_backwards() if job.training and inside(job.epoch)), {}
    )
    info = journal.info()
    config = config_of(info.config_text)
    functions, model = (finetuning_value(config, f"target_{kind}") for kind in ("functions", "model"))
    facts = Facts(
        target_functions=[str(name) for name in functions] if isinstance(functions, list) else [],
        target_model=model if isinstance(model, str) else None,
        words=_words(config, epochs),
        wording={"nat runs show latest": f"nat runs show {info.run_id}"},
        unsent=unsent_prompts(config, last),
        compares=training.get("compares", "group"),
        last_rollouts=last,
        unfinished=bool(unfinished),
        validations=validations,
        unseen_words=unseen,
        usual_unseen=usual,
    )
    return diagnosis_of(Window(epochs, facts=facts, guards=guards_of(config)), ended=ended)


def _words(config: Mapping[str, Any], epochs: Sequence[EpochRecord]) -> dict[str, str]:
    """The names of the run's components, as far as its YAML has them, and its numbers as a remedy changes them."""
    keys = {"LLM": "target_model", "BUILDER": "trajectory_builder", "ADAPTER": "trainer_adapter"}
    named = {word: finetuning_value(config, key) for word, key in keys.items()}
    named["EVALUATOR"] = value_at(finetuning_value(config, "reward_function") or {}, "name")
    llm, builder, adapter = (named[word] for word in keys)
    numbers = {
        "MAX_TOKENS": _times(2, value_at(config, "llms", llm, "max_tokens"), 1024, least=_SENTENCES),
        "GENERATIONS": _times(2, value_at(config, "trajectory_builders", builder, "num_generations"), 16),
        "EPOCHS": _times(4, finetuning_value(config, "num_epochs"), 20),
        "MAX_KL": _times(10, value_at(config, "trainer_adapters", adapter, "training", "max_kl"), 0.1),
    }
    if rates := [epoch.metrics["train/learning_rate"] for epoch in epochs if "train/learning_rate" in epoch.metrics]:
        numbers["LEARNING_RATE"] = f"{max(rates) / 3:.1g}"
    return {word: name for word, name in named.items() if isinstance(name, str)} | numbers


def unsent_prompts(config: Mapping[str, Any], rollouts: Sequence[RolloutRecord]) -> list[str]:
    """Keys of the workflow's and functions' prompts whose text stands in no message of these rollouts.

    Of a text with places to fill in, such as `{question}`, the longest part between them is looked for.
    """
    sent = {_plain(str(message.get("content"))) for record in rollouts for message in record.messages}
    functions = config.get("functions")
    blocks = {"workflow": config.get("workflow")} | {
        f"functions.{name}": block for name, block in (functions.items() if isinstance(functions, dict) else ())
    }
    prompts = {
        f"{place}.{key}": max(map(_plain, _FILLED_IN.split(text)), key=len)
        for place, block in blocks.items()
        for key, text in (block.items() if isinstance(block, dict) else ())
        if isinstance(key, str) and isinstance(text, str) and _OF_PROMPT.search(key)
    }
    return [
        key for key, part in prompts.items() if len(part) >= _LEAST and sent and not any(part in text for text in sent)
    ]


def _plain(text: str) -> str:
    return " ".join(text.split())


def _times(factor: int, value: Any, otherwise: float, *, least: float = 0) -> str:
    """The number times `factor`, and at least so many; if it is no number, `otherwise`."""
    known = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value) and value > 0
    return f"{max(factor * value, least):g}" if known else f"{otherwise:g}"


def _unseen(journal: Journal, validations: Sequence[ValidationRecord], first: int) -> tuple[float | None, float | None]:
    """Shares of unseen words, of the held-out examples and between those in training."""
    if len(validations) < 2:
        return None, None
    held_out = journal.prompts(Phase.VALIDATION, validations[0].epoch)
    return unseen_words(held_out, journal.prompts(Phase.TRAIN, first))


def _some_rollouts(journal: Journal, epoch: int) -> list[RolloutRecord]:
    return list(journal.some_rollouts(Phase.TRAIN, epoch, MOST_READ))


def guards_of(config: Mapping[str, Any]) -> GuardsConfig:
    """The bounds of the run; the usual ones if it recorded none that are valid."""
    try:
        return GuardsConfig.model_validate(finetuning_value(config, "guards") or {})
    except ValidationError:
        return GuardsConfig()
