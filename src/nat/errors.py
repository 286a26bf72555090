"""Every error that the project raises on purpose, in one tree.

    NatError                      something a user can act on; carries a hint that says how
    ├── ConfigError               the YAML, an override or the environment is wrong; all findings at once
    ├── RegistryError             a component type is unknown, ambiguous or registered twice
    ├── DatasetError              a dataset cannot be read, or its rows contradict each other
    ├── WorkflowError             a workflow or function cannot be built or called as asked
    │   └── CommandFailed         a program as workflow ended with an error, not in time, or without its answer
    ├── EvaluationError           an evaluator is missing, or could not score what it was given
    ├── BackendError              the training or inference server failed
    │   ├── BackendUnreachable    it is dead, or did not answer before its deadline
    │   ├── TrainingFailed        a job ended without new weights
    │   │   ├── UpdateRejected    an alarm went off during an update; the weights are as before
    │   │   └── UpdateCanceled    someone asked for the update to stop; the weights are as before
    │   ├── ModelNotSupported     a checkpoint cannot be loaded, or its attention cannot be computed here
    │   ├── CheckpointDamaged     files of a checkpoint are missing, or not what was written
    │   ├── ExportRefused         a model cannot be written where something else stands
    │   ├── ModelNotServed        a name that no weights answer to (any more)
    │   ├── NameRefused           a client's name for something cannot be used, as a folder's name for example
    │   ├── AlgorithmError        an algorithm is unknown or broken, or does not have the options that are set
    │   ├── BatchRefused          trajectories cannot be trained on, or not as the call asks
    │   ├── ModelNotPrepared      a model is to be trained before it was prepared
    │   ├── ModelBusy             a model is being trained, and a second call came for it
    │   └── TooManyModels         the server holds as many models as its owner allows
    ├── RunFailed                 a finetuning run cannot learn, or must not go on
    │   ├── NoTrajectories        nothing to train on, with the causes counted
    │   │   ├── InvalidTrajectories   they are not conversations that the backend can be trained on
    │   │   └── UntrainableSampling   all answers were sampled otherwise than from the model's own distribution
    │   ├── NoLearningSignal      groups without a difference in reward, epoch after epoch
    │   ├── TooManyFailures       more rollouts failed than the configuration allows
    │   └── RewardCollapse        the reward fell far below that of the first epochs
    ├── StorageError              a file or folder cannot be written: a full disk, no permission, a limit
    └── JournalError              a run's folder or journal is missing, taken, or of another version

What is *not* here: one failed rollout or one item that could not be scored. Those are records
(`Rollout.error`, `EvalOutputItem.error`), counted and never turned into a score. Programming errors stay
ordinary Python exceptions. The CLI turns a `NatError` into its text and a non-zero exit code.
"""

import difflib
from collections.abc import Iterable
from traceback import format_exception
from typing import TYPE_CHECKING, NamedTuple

from nat.secrets import redact

if TYPE_CHECKING:  # `nat --help` imports this module, and no pydantic
    from pathlib import Path

    from pydantic import ValidationError


_TRACEBACK_CHARS = 20_000


class NatError(Exception):
    """An error with a remedy: `message` says what was seen and what was wanted, `hint` what to do."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\n  → {self.hint}"


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
    """A workflow or function cannot be built or called as asked."""


class CommandFailed(WorkflowError):
    """A program as workflow ended with an error, not in time, or without its answer."""


class EvaluationError(NatError):
    """An evaluator is missing, or could not score what it was given."""


class BackendError(NatError):
    """The training or inference server failed."""


class BackendUnreachable(BackendError, ConnectionError):
    """The server is dead, or did not answer before its deadline."""


class TrainingFailed(BackendError):
    """A training job ended without new weights."""


class UpdateRejected(TrainingFailed):
    """An alarm went off during an update; `kind` names it, and the weights are as before."""

    def __init__(self, message: str, *, kind: str, hint: str) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind


class UpdateCanceled(TrainingFailed):
    """Someone asked for the update to stop; the weights are as before."""


class AlgorithmError(BackendError):
    """An algorithm is unknown or broken, or does not have the options that are set."""


class ModelNotSupported(BackendError):
    """A checkpoint cannot be loaded, or its attention cannot be computed by the embedded backend."""


class CheckpointDamaged(BackendError):
    """Files of a checkpoint are missing, or not what was written; `findings` says of each what is wrong."""

    def __init__(self, folder: "Path", findings: list[str]) -> None:
        self.findings = findings
        super().__init__(
            f"the checkpoint {folder} is damaged: {'; '.join(findings)}",
            hint="bring these files back from a copy, or take another checkpoint",
        )


class ExportRefused(BackendError):
    """A model cannot be written where something else stands, which stays as it is."""


class ModelNotServed(BackendError):
    """No weights answer to a name, or those that did are gone."""


class NameRefused(BackendError, ValueError):
    """A client's name for something cannot be used: it cannot name a folder, or is taken."""


class BatchRefused(BackendError):
    """Trajectories cannot be trained on, or not in the way that the call asks for."""


class ModelNotPrepared(BackendError):
    """A model is to be trained that has no weights of its own yet."""


class ModelBusy(BackendError):
    """A model is being trained already."""


class TooManyModels(BackendError):
    """The server holds as many models as its owner allows."""


class RunFailed(NatError):
    """A finetuning run cannot learn, or must not go on."""


class NoTrajectories(RunFailed):
    """There is nothing to train on; the message counts the causes."""


class InvalidTrajectories(NoTrajectories, ValueError):
    """Trajectories are not conversations that the backend can be trained on."""


class UntrainableSampling(NoTrajectories):
    """All answers were sampled otherwise than from the model's own distribution: greedily, from a nucleus, …."""


class NoLearningSignal(RunFailed):
    """No group had a difference in reward for several epochs."""


class TooManyFailures(RunFailed):
    """More rollouts failed than the configuration allows."""


class RewardCollapse(RunFailed):
    """The reward fell far below that of the first epochs."""


class StorageError(NatError):
    """A file or folder cannot be written: a full disk, no permission, a limit."""


class JournalError(NatError):
    """A run's folder or journal is missing, taken, or of another version."""


ANY_FAILURE = (Exception, SystemExit, KeyboardInterrupt)
"""What is caught where code of the user's runs (one rollout, one score, one component): `sys.exit()` in it is that
one's failure, and no end of the process. Ctrl-C raises nothing there: it cancels the task."""


class Finding(NamedTuple):
    """One of the things that are wrong with a record."""

    place: str
    """Keys and numbers with dots between them; empty for the whole record."""
    message: str

    def __str__(self) -> str:
        return f"{self.place}: {self.message}" if self.place else self.message


def findings_of(error: "ValidationError") -> list[Finding]:
    """What pydantic found, at least one finding."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    return [Finding(".".join(map(str, each["loc"])), each["msg"]) for each in found]


def traceback_of(error: BaseException) -> str:
    """The whole traceback as Python prints it, without secrets; cut in the middle if it is endless."""
    text = redact("".join(format_exception(error)))
    half = _TRACEBACK_CHARS // 2
    return text if len(text) <= _TRACEBACK_CHARS else f"{text[:half]}\n  …\n{text[-half:]}"


def describe_error(error: BaseException) -> str:
    """An exception in one line: its class, and its text without secrets if it has one."""
    return f"{type(error).__name__}: {redact(str(error))}" if str(error) else type(error).__name__


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?`, with a leading blank; empty if no known word is close."""
    folded = {k.casefold(): k for k in sorted(known, reverse=True)}
    close = difflib.get_close_matches(word.casefold(), folded, n=1, cutoff=0.6)
    return f" Did you mean '{folded[close[0]]}'?" if close else ""


def one_of(known: Iterable[str]) -> str:
    """The known words in order, for the end of a sentence."""
    return ", ".join(sorted(known)) or "none"
