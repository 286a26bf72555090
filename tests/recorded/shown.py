"""What can be seen of a run: its console, its files, its pages, its exports, its rows. As one text, without times."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from fakes.training_rows import logprobs_of
from nat.cli.main import cli
from nat.runs.journal import reading
from nat.runs.records import Phase
from nat.wire.training import TrainingRow
from recorded.agents import SUBMITTED
from recorded.playing import CONSOLE

FORMS = ("grpo", "preference", "kto", "messages")
_TIMES = re.compile(
    r"(?<![\w.])\d+(\.\d+)?( ?)(ms|s|min|h|seconds?|minutes?|MB|GB|tokens/s)\b|\d+ min \d+ s|about \d+(\.\d+)? (s|min)"
)
_STAMPS = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d)?([.,]\d+)?(Z|[+-]\d\d:\d\d)?|\b\d\d:\d\d:\d\d(,\d+)?\b")
_RUN = re.compile(r"(?<![0-9])\d{8}-\d{6}-[0-9a-f]{4,}\b")
_UUID = re.compile(
    r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b|\b[0-9a-f]{32,64}\b|(?<=_)[0-9a-f]{8}\b"
)
_PORT = re.compile(r"127\.0\.0\.1:\d+|(?<=port: )\d+|(?<=\"port\": )\d+")
_LOGGER = re.compile(r"(?<= - )nat\.[\w.]+:\d+ - ")
_LINE_OF_CODE = re.compile(r"(?<=line )\d+|(?<=\.py:)\d+")
_FRAMES = re.compile(r"^(?:  File |    ).*\n", re.MULTILINE)
"""Of tracebacks, which name folders and differ between releases of libraries."""
_VARYING = re.compile(
    r"^(time/.*|.*seconds|.*per_second|timestamp|created_at|ended_at|updated_at|submitted_at|memory/.*)$"
)
_SHARES_OF_TIME = re.compile(r"^Time      .*", re.MULTILINE)
_WAITING = re.compile(r"(?<=the learner waited for rollouts in ).*")
_SECONDS_OF_EPOCH = re.compile(r"^(\d+ +\d\.\d{3} .*?) +[\d.]+( +[a-z]+)?$", re.MULTILINE)
_NUMBER = re.compile(r"(?<![\w.])-?\d+\.\d+(?:e-?\d+)?|(?<![\w.])-?\d+e-?\d+")


def shown(folder: Path, run_dir: Path | None = None) -> str:
    """The sections of a run in one text; those of its folder alone with `run_dir`, for a folder that was kept."""
    run = run_dir or (folder / "runs" / "latest").resolve()
    sections = [*(_played(folder) if run_dir is None else ()), *_of_folder(run)]
    text = "\n".join(f"=== {title}\n{body.rstrip()}" for title, body in sections)
    return "\n".join(line.rstrip() for line in _normal(text, folder, run).splitlines()) + "\n"


def of_folder(text: str) -> str:
    """The sections that a kept folder gives, too."""
    return text[text.index("=== nat runs show") :]


def differences(expected: str, found: str, bound: float) -> list[str]:
    """The lines that differ, by more than `bound` in a number: as it is and relative to the number."""
    ours, theirs = expected.splitlines(), found.splitlines()
    lines = [
        f"line {number}\n- {a}\n+ {b}"
        for number, (a, b) in enumerate(zip(ours, theirs, strict=False), 1)
        if not _close(a, b, bound)
    ]
    if len(ours) != len(theirs):
        lines.append(f"{len(ours)} lines were expected, {len(theirs)} found")
    return lines


def _close(a: str, b: str, bound: float) -> bool:
    if a == b:
        return True
    if _NUMBER.sub("#", a) != _NUMBER.sub("#", b):
        return False
    pairs = zip(map(float, _NUMBER.findall(a)), map(float, _NUMBER.findall(b)), strict=True)
    return all(abs(x - y) <= bound * (1 + abs(x)) for x, y in pairs)


def _played(folder: Path) -> Iterator[tuple[str, str]]:
    yield "console", (folder / CONSOLE).read_text()
    run = (folder / "runs" / "latest").resolve()
    yield "files", "\n".join(sorted(str(p.relative_to(run)) for p in run.rglob("*") if p.is_file()))
    for file in sorted(run.iterdir()):
        if file.suffix in {".jsonl", ".json", ".txt"} and file.is_file():
            yield file.name, _text_of(file)
    if (folder / SUBMITTED).exists():
        yield SUBMITTED, _text_of(folder / SUBMITTED)


def _text_of(file: Path) -> str:
    text = file.read_text()
    if file.suffix == ".txt":
        return _FRAMES.sub("", text)
    if file.suffix == ".json":
        return json.dumps(_still(json.loads(text)), indent=1, ensure_ascii=False)
    if file.suffix == ".jsonl":
        return "\n".join(json.dumps(_still(json.loads(line)), ensure_ascii=False) for line in text.splitlines())
    return text


def _of_folder(run: Path) -> Iterator[tuple[str, str]]:
    yield "nat runs show", _nat("runs", "show", str(run))
    yield "nat runs show --json", _json("runs", "show", str(run), "--json")
    with reading(run) as journal:
        trained, held_out = journal.played(Phase.TRAIN), journal.played(Phase.VALIDATION)
    for epoch in trained:
        which = ("--epoch", str(epoch + 1))
        yield f"nat runs show {' '.join(which)}", _nat("runs", "show", str(run), *which)
        choice = ("--best", "1", "--worst", "1", "--failed", "9")
        yield f"nat runs show {' '.join((*which, *choice))}", _nat("runs", "show", str(run), *which, *choice)
    for epoch in held_out:
        which = ("--validation", str(epoch), "--best", "1")
        yield f"nat runs show {' '.join(which)}", _nat("runs", "show", str(run), *which)
    for form in FORMS:
        for more in ((), ("--tokens",)):
            given = ("--as", form, "--epoch", "1", *more)
            yield f"nat runs export {' '.join(given)}", _exported(run, *given) if trained else "nothing was played"
    yield "nat diagnose", _nat("diagnose", str(run))
    yield "rows", "\n".join(_rows(run))


def _exported(run: Path, *given: str) -> str:
    file = run / "exported.jsonl"
    said = _nat("runs", "rollouts", str(run), str(file), "--force", *given)
    text = _text_of(file) if file.exists() else ""
    file.unlink(missing_ok=True)
    return f"{said}\n{text}"


def _nat(*arguments: str) -> str:
    result = CliRunner().invoke(cli, ["--log-level", "warning", *arguments])
    return result.stdout + (
        "" if result.exception is None else f"{type(result.exception).__name__}: {result.exception}"
    )


def _json(*arguments: str) -> str:
    return json.dumps(_still(json.loads(_nat(*arguments))), indent=1, ensure_ascii=False)


def _rows(run: Path) -> Iterator[str]:
    """The training rows as the journal has them: prompts, and what was sampled with all that is known of it."""
    with reading(run) as journal:
        for epoch in journal.played(Phase.TRAIN):
            for record in journal.rollouts(Phase.TRAIN, epoch):
                who = f"epoch {epoch}, example {record.example_id}, generation {record.generation}"
                yield f"{who}: reward {record.reward}, seed {record.seed}"
                for row in record.rows:
                    yield f"  ids {row.token_ids}"
                    yield f"  logprobs {logprobs_of(row)}"
                    yield f"  {json.dumps(_facts(row))}"


def _facts(row: TrainingRow) -> dict[str, Any]:
    """What is known of the sampled tokens, in runs of those that have it in common."""
    values = [(span.size, span.value) for span in row.spans if span.value is not None]
    temperatures, versions = (
        [(sum(size for size, _ in part), value) for value, part in groupby(found, itemgetter(1))]
        for found in (
            [(span.size, span.temperature) for span in row.spans],
            [(span.size, span.policy_version) for span in row.spans],
        )
    )
    facts = {
        "returns": _counted("value", values),
        "temperatures": _counted("temperature", temperatures) if {1.0} != {t for _, t in temperatures} else None,
        "policy_versions": _counted("policy_version", versions) if {None} != {v for _, v in versions} else None,
    }
    return {name: entries for name, entries in facts.items() if entries}


def _counted(name: str, entries: Sequence[tuple[int, Any]]) -> list[dict[str, Any]]:
    return [{"num_tokens": count, name: value} for count, value in entries]


def _still(value: Any) -> Any:
    """Without what differs between two equal runs."""
    if isinstance(value, dict):
        kept = {key: part for key, part in value.items() if key != "scoring"}  # absent where it took no time
        return {key: "…" if _VARYING.match(key) and part is not None else _still(part) for key, part in kept.items()}
    if isinstance(value, list):
        return [_still(part) for part in value]
    return value


def _normal(text: str, folder: Path, run: Path) -> str:
    for path in (str(run), str(run.resolve()), f"{folder.resolve()}/runs/{run.name}"):
        text = text.replace(path, "RUN")
    text = text.replace(str(folder.resolve()), "FOLDER")
    for pattern, word in (
        (_RUN, "RUN-ID"),
        (_STAMPS, "TIME"),
        (_UUID, "UUID"),
        (_PORT, "PORT"),
        (_LOGGER, ""),
        (_LINE_OF_CODE, "N"),
        (_TIMES, "TIME"),
        (_SHARES_OF_TIME, "Time"),
        (_WAITING, "TIME"),
        (_SECONDS_OF_EPOCH, r"\1 TIME\2"),
    ):
        text = pattern.sub(word, text)
    return text
