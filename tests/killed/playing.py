"""Run a project, kill it, go on with it, and look at what it came to."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from killed.agents import JUDGED, PLAYED, TRACKED
from killed.faults import FAULT, LOG, REFUSALS
from killed.processes import AGAIN, BACKEND, BACKEND_PID, HARNESS, PROGRAM
from nat.backend.output_folder import LOCK
from nat.files import UNFINISHED
from nat.runs.journal import reading
from nat.runs.records import Phase, RunState
from nat.runs.tracker import FOLDER as TRACKERS_FOLDER
from nat.wire.serving import CHECKPOINTS

ROOT = Path(__file__).parents[2]
DEADLINE = 240
_VARYING = re.compile(r"^(time/.*|.*seconds|.*per_second|timestamp|.*_at|memory/.*|scoring)$")
"""Fields that two equal runs have with different values."""
_OF_SQLITE = ("-wal", "-shm")
_ACCEPTED = re.compile(r"(?<=/accepted_jobs/)\d{8,15}(?=-)")
"""The place of a batch among those that were left when its process began."""
_RUN = re.compile(r"\d{8}-\d{6}-[0-9a-f]{4}")


@dataclass(frozen=True)
class Kill:
    """How a process ends before its time."""

    faults: Mapping[str, str] = field(default_factory=dict)
    """For each process, when and at which operation, such as `before:3`."""
    seconds: float | None = None
    """Kill `victims` from outside after so many seconds."""
    victims: Sequence[str] = ()
    stopped: float | None = None
    """Stop them for so many seconds instead of killing them."""

    @property
    def refuses(self) -> set[str]:
        """The kinds of disk on which writes fail."""
        return {fault.partition(":")[0] for fault in self.faults.values()} & REFUSALS.keys()

    @property
    def calls_again(self) -> int:
        """Calls under way: while a run ends by itself, one may begin in each pass, and a tracker is told once more."""
        return 3 if self.refuses else 1

    def unsaid(self, output: str) -> Iterator[str]:
        """What a process does not say of the disk that refused its writes."""
        for kind in self.refuses:
            code, _, words = REFUSALS[kind]
            if os.strerror(code) not in output and words not in output:
                yield f"its end does not say that the disk is {kind}: {output[-3000:]}"

    def __str__(self) -> str:
        inside = [f"{name.lower()} {fault}" for name, fault in self.faults.items()]
        stopped = "" if self.stopped is None else f", stopped for {self.stopped:g} s"
        return ", ".join([*inside, *(f"{name.lower()} after {self.seconds:.3f} s{stopped}" for name in self.victims)])


@dataclass
class Played:
    """A run to its end, through all kills."""

    folder: Path
    kills: list[str] = field(default_factory=list)
    """The kills that took place, each with the operation at which it did."""
    calls_again: int = 0
    """Rollouts, and words to a tracker, that the kills may have repeated."""
    complete: bool = False
    """The run had completed when it was killed, so no process goes on with it."""
    failures: list[str] = field(default_factory=list)
    """What is wrong with it."""

    @property
    def run_dir(self) -> Path:
        return (self.folder / "runs" / "latest").resolve()


def play(folder: Path, kills: Sequence[Kill] = (), *, attempts: int = 3) -> Played:
    """Run the project with these kills, one after the other, then to its end; a run that fails is tried again."""
    played = Played(folder)
    for kill in kills:
        code, output = _process(folder, kill, played)
        played.complete = _completed(played.run_dir)
        if code == 0:
            break
        if code > 0:  # a process that was killed says nothing, as where a disk would refuse a rename
            played.failures += kill.unsaid(output)
        played.kills.append(f"{kill}: {_last_operations(folder, kill)}")
        played.calls_again += kill.calls_again
        if played.complete:  # else the next process begins a new run
            break
    for _ in range(attempts):
        if _completed(played.run_dir):
            return played
        code, output = _process(folder, Kill(), played)
        if code == 0:
            return played
        played.failures.append(f"resume: exit code {code}: {output[-3000:]}")
    return played


def _completed(run_dir: Path) -> bool:
    with suppress(Exception), reading(run_dir) as journal:
        return journal.info().state is RunState.COMPLETED
    return False


def _process(folder: Path, kill: Kill, played: Played) -> tuple[int, str]:
    """Start `nat finetune`, which goes on with the run if there is one; returns its exit code and its output."""
    logs = {name: folder / f"{name.lower()}.points" for name in (HARNESS, BACKEND)}
    (folder / BACKEND_PID).unlink(missing_ok=True)
    for log in logs.values():
        log.unlink(missing_ok=True)
    environment = _environment(folder) | {
        **{LOG.format(name): str(log) for name, log in logs.items()},
        **{FAULT.format(name): fault for name, fault in kill.faults.items()},
    }
    options = ("--log-level", "info", "finetune", "--config_file=config.yml", "--resume=auto")
    with (folder / "output.txt").open("ab") as output:
        begin = output.tell()
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format("harness"), *options],
            cwd=folder,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            if kill.seconds is not None:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(kill.seconds)
                if process.poll() is None:
                    _disturb(kill, process, folder)
            code = process.wait(DEADLINE)
        finally:
            process.kill()
            process.wait()
    return code, (folder / "output.txt").read_bytes()[begin:].decode()


def _environment(folder: Path) -> dict[str, str]:
    path = os.pathsep.join([str(ROOT / "tests"), str(ROOT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path, "XDG_STATE_HOME": str(folder / "state")}


def _disturb(kill: Kill, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Kill the victims, or stop them for a time."""
    _signal(signal.SIGKILL if kill.stopped is None else signal.SIGSTOP, kill.victims, process, folder)
    if kill.stopped is not None:
        time.sleep(kill.stopped)
        _signal(signal.SIGCONT, kill.victims, process, folder)


def _signal(number: int, victims: Sequence[str], process: subprocess.Popen[bytes], folder: Path) -> None:
    if BACKEND in victims:
        with suppress(OSError, ValueError):
            os.kill(int((folder / BACKEND_PID).read_text()), number)
    if HARNESS in victims:
        process.send_signal(number)


def _last_operations(folder: Path, kill: Kill) -> str:
    """What the killed processes were about to do."""
    found = []
    for name in kill.faults or kill.victims:
        log = folder / f"{name.lower()}.points"
        lines = log.read_text().splitlines() if log.exists() else []
        found.append(f"{name.lower()} at {lines[-1].replace(str(folder), '') if lines else 'its beginning'}")
    return ", ".join(found)


def points(folder: Path, name: str) -> list[str]:
    """The operations of the last process of this name."""
    return (folder / f"{name.lower()}.points").read_text().replace(str(folder), "").splitlines()


def facts(played: Played) -> dict[str, Any]:
    """All that a run came to, without times."""
    run_dir = played.run_dir
    found: dict[str, Any] = {}
    with reading(run_dir) as journal:
        info = journal.info()
        found["state"] = (str(info.state), info.message)
        for phase in Phase:
            for epoch in journal.played(phase):
                for record in journal.rollouts(phase, epoch):
                    name = f"rollout {phase} {epoch} {record.example_id} {record.generation}"
                    assert name not in found
                    found[name] = record.model_dump(mode="json")
        found |= {f"epoch {each.epoch}": each.model_dump(mode="json") for each in journal.epochs()}
        found |= {f"validation {each.epoch}": each.model_dump(mode="json") for each in journal.validations()}
        found |= {f"job {number}": each.model_dump(mode="json") for number, each in enumerate(journal.jobs())}
        found |= {f"phase {each.name}": each.model_dump(mode="json") for each in journal.phases()}
        best, summary = journal.best(), journal.summary()
        found["best"] = best and best.model_dump(mode="json")
        found["summary"] = summary and summary.model_dump(mode="json")
        found["kept"] = [
            (phase, epoch)
            for phase in Phase
            for epoch in range(len(journal.epochs()) + 2)
            if journal.kept(phase, epoch)
        ]
    for folder in sorted(run_dir.rglob(CHECKPOINTS)):
        of = "" if folder.parent == run_dir else f" of {folder.parent.name}"
        ledger = [json.loads(line) for line in (folder / "jobs.jsonl").read_text().splitlines()]
        own = [{"step": each["step"], "job": each["state"]} for each in ledger]  # the digest is of the id, too
        found[f"ledger{of}"] = own
        for path in sorted(folder.iterdir()):
            if path.is_symlink():
                found[f"link {path.name}{of}"] = str(path.readlink())
    for path in sorted(run_dir.rglob("*.safetensors")):
        found[f"digest of {path.relative_to(run_dir)}"] = sha256(path.read_bytes()).hexdigest()
    files = [path for path in run_dir.rglob("*") if not path.name.startswith((".run", LOCK))]
    if played.complete:  # nothing goes on with it, so that SQLite's files and a tracker's draft stay
        files = [path for path in files if not path.name.endswith(_OF_SQLITE) and path.parent.name != TRACKERS_FOLDER]
    names = (str(path.relative_to(run_dir)) for path in files if path.parent.name != TRACKERS_FOLDER)
    found["files"] = sorted(_ACCEPTED.sub("N", name) for name in names)
    for name in ("training_metrics.jsonl", "reward_history.json", "validation_history.json", "summary.json"):
        text = (run_dir / name).read_text() if (run_dir / name).exists() else "null"
        found[name] = [json.loads(line) for line in text.splitlines()] if name.endswith("l") else json.loads(text)
    found["unfinished"] = [str(path) for path in files if path.name.startswith(UNFINISHED)]
    return {name: _still(value) for name, value in json.loads(_RUN.sub("RUN", json.dumps(found))).items()}


def _still(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _still(part) for key, part in value.items() if not _VARYING.match(key)}
    return [_still(part) for part in value] if isinstance(value, list) else value


def calls(folder: Path) -> dict[str, Counter[str]]:
    """How often the agent and the judge were asked each thing."""
    files = {name: folder / name for name in (PLAYED, JUDGED, TRACKED)}
    return {name: Counter(file.read_text().splitlines() if file.exists() else ()) for name, file in files.items()}


def differences(expected: Any, found: Any, place: str = "") -> Iterator[str]:
    """Each leaf that differs."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in expected.keys() | found.keys():
            yield from differences(expected.get(key), found.get(key), f"{place}/{key}")
    elif expected != found:
        yield f"{place}: {str(expected)[:200]} was expected, found {str(found)[:200]}"


def compare(undisturbed: Played, played: Played, *, deterministic: bool = True) -> list[str]:
    """What is wrong with a run that was killed; one that is not deterministic has the same parts with other numbers."""
    wrong = [*played.failures]
    try:
        expected, found = facts(undisturbed), facts(played)
        if not deterministic:
            wrong += _of_other_batches(played, found)
            expected, found = _parts(expected), _parts(found)
        wrong += sorted(differences(expected, found))
    except Exception as error:  # noqa: BLE001 - what a broken run raises is a finding
        wrong.append(repr(error))
    return wrong + _wrong_calls(undisturbed, played, deterministic=deterministic)


def _parts(found: dict[str, Any]) -> dict[str, Any]:
    """The parts of a run, with the values that are equal in all runs."""
    equal = ("state", "kept", "link latest", "files", "unfinished")
    return {name: value if name in equal else None for name, value in found.items()} | {
        "ledger": [each["job"]["id"] for each in found["ledger"]],
        "link best": None,  # of another validation
    }


def _of_other_batches(played: Played, found: dict[str, Any]) -> list[str]:
    """Whether the weights are other ones than those of the batches, each trained once and in order."""
    command = [sys.executable, "-c", PROGRAM.format("train_again")]
    subprocess.run(command, cwd=played.folder, env=_environment(played.folder), check=True, capture_output=True)
    weights = next((played.folder / AGAIN / CHECKPOINTS / "latest").glob("*.safetensors")).parent / "model.safetensors"
    same = sha256(weights.read_bytes()).hexdigest() == found["digest of model/model.safetensors"]
    return [] if same else ["the weights are not those of the batches"]


def _wrong_calls(undisturbed: Played, played: Played, *, deterministic: bool) -> list[str]:
    """A call that is under way at a kill may be asked again, and no other; there is one at a time."""
    expected, found, wrong = calls(undisturbed.folder), calls(played.folder), []
    told, twice = expected[TRACKED], found[TRACKED]  # a tracker may get again what it has not acknowledged
    untold = set() if played.complete else told.keys() - twice.keys()  # `nat runs send` sends the rest
    if untold or max(twice.values()) > 1 + played.calls_again:
        wrong.append(f"{TRACKED}: {dict(twice)}")
    if not deterministic:  # other answers are judged
        for counts in (expected, found):
            counts[JUDGED] = Counter({"": counts[JUDGED].total()})
    for name, again in ((PLAYED, played.calls_again), (JUDGED, len(played.kills))):
        missing, more = expected[name] - found[name], found[name] - expected[name]
        if missing:
            wrong.append(f"{name}: missing {dict(missing)}")
        if more.total() > again:
            wrong.append(f"{name}: {more.total()} calls more after {played.kills}: {dict(more)}")
    return wrong
