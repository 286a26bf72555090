"""Every error that the project raises on purpose: a `NatError` carries a hint that says how to act on it.

What is *not* here: one failed rollout or one item that could not be scored. Those are records
(`Rollout.error`, `EvalOutputItem.error`), counted and never turned into a score. Programming errors stay
ordinary Python exceptions. The CLI turns a `NatError` into its text and a non-zero exit code.
"""

import difflib
import re
import sysconfig
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from traceback import extract_tb, format_exception
from typing import TYPE_CHECKING, Any, NamedTuple

from nat.secrets import excerpt, redact

if TYPE_CHECKING:  # `nat --help` imports this module, and no pydantic
    from pathlib import Path

    from pydantic import ValidationError


_TRACEBACK_CHARS = 20_000
_NOT_THEIRS = ("<", __file__.removesuffix("errors.py"), sysconfig.get_path("stdlib"))
"""Beginnings of paths that are not the user's: frozen code, this package and Python's library."""


class NatError(Exception):
    """An error with a remedy: `message` has the problem and the expectation, `hint` the remedy."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  → {self.hint}"

    @property
    def in_line(self) -> str:
        """Problem and remedy in one line."""
        if self.hint is None:
            return self.message
        if self.message.endswith(("?", ".")):
            return f"{self.message} {self.hint[:1].upper()}{self.hint[1:]}"
        return f"{self.message}; {self.hint}"


class ConfigError(NatError, ValueError):
    """One or more findings about the configuration; `findings` holds each as `path: what is wrong`."""

    def __init__(self, findings: list[str], *, source: str = "configuration", hint: str | None = None) -> None:
        self.findings = findings
        count = "1 error" if len(findings) == 1 else f"{len(findings)} errors"
        super().__init__(f"{count} in {source}:\n" + "\n".join(f"  - {f}" for f in findings), hint=hint)


class RegistryError(NatError, ValueError):
    """A component type is unknown, ambiguous or registered twice."""


class DatasetError(NatError, ValueError):
    """A dataset cannot be read, or its rows contradict each other."""


class WorkflowError(NatError, ValueError):
    """A workflow or function cannot be built or called as requested."""


class CommandFailed(WorkflowError):
    """A program as workflow ended with an error, not in time, or without its answer."""


class ServiceFailed(WorkflowError):
    """A service as workflow gave no answer, or answered without a call to its model."""


class EvaluationError(NatError):
    """An evaluator is missing, or could not score its items."""


class BackendError(NatError):
    """The training or inference server failed."""


class BackendUnreachable(BackendError, ConnectionError):
    """The server is dead, or did not answer before its deadline."""


class TrainingFailed(BackendError):
    """A training job ended without new weights."""


class UpdateRejected(TrainingFailed):
    """A check failed during an update; `kind` names it, and the weights are unchanged."""

    def __init__(self, message: str, *, kind: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class UpdateCanceled(TrainingFailed):
    """The update was canceled by a request; the weights are unchanged."""


class EngineFailed(BackendError):
    """A sampling engine in another process did not start, ended, does not answer, or refused or failed a call."""


class WeightsReplaced(EngineFailed):
    """The engine answers with other weights than those of the last update."""


class AlgorithmError(BackendError):
    """An algorithm is unknown or broken, or does not have the options that are set."""


class ModelNotSupported(BackendError):
    """A checkpoint cannot be loaded, or its attention cannot be computed by the embedded backend."""


class ModelUnavailable(BackendError):
    """A model's folder or name does not exist, or it cannot be downloaded."""


class CheckpointDamaged(BackendError):
    """Files of a checkpoint are missing or were changed; `findings` has one sentence per file."""

    def __init__(self, folder: "Path", findings: list[str]) -> None:
        self.findings = findings
        super().__init__(
            f"the checkpoint {folder} is damaged: {'; '.join(findings)}",
            hint="restore these files from a copy, or use another checkpoint",
        )


class ExportRefused(BackendError):
    """The target of an export exists and is not an exported model; it is left unchanged."""


class ModelNotServed(BackendError):
    """No weights are served under a name, or no longer."""


class NameRefused(BackendError, ValueError):
    """A name that a client chose is invalid, as it cannot name a folder, or is taken."""


class BatchRefused(BackendError):
    """Trajectories cannot be trained on, or not with the requested settings."""


class ModelNotPrepared(BackendError):
    """Training was requested for a model that is not prepared: it has no weights of its own yet."""


class ModelBusy(BackendError):
    """A model is being trained already."""


class TooManyModels(BackendError):
    """The server's limit of models is reached."""


class RunFailed(NatError):
    """A finetuning run cannot learn, or must not continue."""


class NoTrajectories(RunFailed):
    """There is nothing to train on; the message counts the causes."""


class InvalidTrajectories(NoTrajectories, ValueError):
    """Trajectories are not conversations that the backend can be trained on."""


class NoPreferencePairs(NoTrajectories):
    """No two candidates of the rollouts make a pair of a better and a worse answer."""


class UntrainableSampling(NoTrajectories):
    """All answers were sampled greedily, from a nucleus or similar, none from the model's own distribution."""


class NoLearningSignal(RunFailed):
    """No group had a difference in reward for several epochs."""


class TooManyFailures(RunFailed):
    """More rollouts failed than the configuration allows."""


class RewardCollapse(RunFailed):
    """The reward fell far below that of the first epochs."""


class TrackerFailed(NatError):
    """A tracker did not take what it was given of a run."""


class ProjectRefused(NatError, ValueError):
    """A new project cannot be written: its name, its folder, its framework, or no model."""


class StorageError(NatError):
    """A file or folder cannot be written: a full disk, no permission, a limit."""


class JournalError(NatError):
    """A run's folder or journal is missing, taken, or of another version."""


ANY_FAILURE = (Exception, SystemExit, KeyboardInterrupt)
"""The exceptions to catch around user code (one rollout, one score, one component): a `sys.exit()` in it counts as its
failure and does not end the process. Ctrl-C cancels the task instead of raising there."""


_MAX_LISTED = 1000
"""Errors of one record that are listed."""
_PLACE_CHARS = 100
"""Of each key in the place of an error; keys may be as long as a body."""


class RecordError(NamedTuple):
    """One error in a record."""

    place: str
    """Keys and numbers with dots between them; empty for the whole record."""
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


def findings_of(error: "ValidationError") -> list[RecordError]:
    """Pydantic's errors as findings, at least one; a single one for thousands, each of which takes a kilobyte."""
    if (count := error.error_count()) > _MAX_LISTED:
        return [RecordError("", f"{count} errors in {error.title}, too many to list")]
    found = error.errors(include_url=False, include_input=False)
    return [
        RecordError(".".join(excerpt(str(part), _PLACE_CHARS) for part in each["loc"]), problem_of(each))
        for each in found
    ]


def problem_of(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors without its word for the value, such as `should be a valid integer`."""
    if error["type"] in {"missing", "extra_forbidden"}:
        return "this key is required" if error["type"] == "missing" else "unknown key"
    text = re.sub(r"a valid dictionary( or instance of \w+)?", "a mapping of keys to values", str(error["msg"]))
    return re.sub(r"^(Value error, |Assertion error, |Input (?=should ))", "", text)


def traceback_of(error: BaseException) -> str:
    """The whole traceback as Python prints it, without secrets; cut in the middle if it is very long."""
    text = redact("".join(format_exception(error)))
    half = _TRACEBACK_CHARS // 2
    return text if len(text) <= _TRACEBACK_CHARS else f"{text[:half]}\n  …\n{text[-half:]}"


def describe_error(error: BaseException) -> str:
    """An exception in one line: its class, and its text without secrets if it has one."""
    return f"{type(error).__name__}: {redact(str(error))}" if str(error) else type(error).__name__


def place_of(error: BaseException) -> str:
    """The innermost line of the user's code in a traceback, in brackets, with a leading blank; empty if none is."""
    frames = extract_tb(error.__traceback__)
    own = [f for f in frames if not f.filename.startswith(_NOT_THEIRS) and "site-packages" not in f.filename]
    return f" ({own[-1].filename}, line {own[-1].lineno})" if own else ""


@asynccontextmanager
async def first_error() -> AsyncIterator[None]:
    """Raise the first error of the tasks of a group in place of the group."""
    try:
        yield
    except ExceptionGroup as group:
        raise group.exceptions[0] from group


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, with a leading blank; empty if no known word is close, or alone has the word as a part."""
    folded = {k.casefold(): k for k in sorted(known, reverse=True)}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    parts = [name for name in folded if word.casefold() in name.split("_")]
    found = close or (parts if len(parts) == 1 else [])
    return f" Did you mean '{folded[found[0]]}'?" if found else ""


def did_you_mean_path(path: "Path") -> str:
    """`. Did you mean 'data/train.jsonl'?`, for a path that does not exist; empty if none beside it is close."""
    try:
        beside = [each.name for each in path.parent.iterdir() if not each.name.startswith(".")]
    except OSError:
        return ""
    found = difflib.get_close_matches(path.name, sorted(beside), n=1, cutoff=0.7)
    return f". Did you mean '{path.parent / found[0]}'?" if found else ""


def one_of(known: Iterable[str]) -> str:
    """The known words in order, for the end of a sentence."""
    return ", ".join(sorted(known)) or "none"
