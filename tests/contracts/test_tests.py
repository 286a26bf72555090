"""Rules for the tests themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE, UNIT = ROOT / "src" / "nat", ROOT / "tests" / "unit"
LONG = 150
"""A module with at least this many non-blank lines needs a test file of its name."""
SUBJECTS = {
    "backend/inference/test_kernels.py": "the kernels that a token starts on a GPU, from engine to layers",
    "backend/test_families.py": "other people's classes of models, from loading to exports",
    "backend/test_repeatable_families.py": "equal bits of these models on any processor",
    "backend/vllm/test_overlap.py": "updates beside vLLM of batches that older weights sampled",
    "backend/training/test_distill.py": "learning from a teacher, from batch to gradient",
    "backend/training/test_extreme_settings.py": "updates at the smallest and the largest value of each setting",
    "backend/training/test_several_rows.py": "losses over rollouts of several rows, from batch to gradient",
    "backend/training/test_temperature.py": "tokens of several temperatures, from batch to gradient",
    "eval/test_facades.py": "import paths of the toolkit's guides that lead to one class",
    "finetuning/test_endpoint.py": "training and validation with a workflow behind a URL",
    "finetuning/test_relative_reward.py": "rewards that compare generations, from plan to diagnosis",
    "finetuning/trajectories/test_edited_histories.py": "agents that change their history, from calls to exports",
    "gateway/dialects/test_malformed.py": "what every dialect does with requests that are none",
    "gateway/dialects/test_round_trips.py": "both dialects there and back",
    "gateway/test_security.py": "who may ask the gateway for what",
    "utils/test_run_workflow.py": "the guide's helpers for a workflow's YAML",
}
"""Tests that cover several modules, and every `test_fuzz.py`."""
ELSEWHERE = {
    "art/wire.py": "records, read and written by the tests of client and server",
    "backend/inference/spans.py": "sampling over shared nodes, compared with the model in test_engine.py",
    "backend/vllm/hand_over.py": "updates through scripted servers, in test_engine.py and test_fleet.py",
    "errors.py": "each error is shown where it is raised",
    "finetuning/runtime.py": "whole runs, in tests/e2e",
    "finetuning/trajectories/outcome.py": "records and causes, counted by the tests of select and guards",
    "gateway/dialects/responses/answer.py": "test_responses_answer.py, beside the other dialect's",
    "gateway/dialects/responses/request.py": "test_responses_request.py, beside the other dialect's",
    "rollout/ray_workers.py": "processes of a real cluster, in conformance/ray",
    "wire/openai_requests.py": "the records of chat requests, parsed by the tests of backend and gateway",
    "wire/openai_responses.py": "the records of their answers, written by the same tests",
}
"""Long modules whose tests have another name."""
FOLDERS = ("tests", "examples", "conformance")
CHECKS = ("raises", "warns", "fail")
"""Helpers of pytest that count as assertions."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions() -> list[tuple[str, Function]]:
    """Every function of the tests, with its location."""
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py"))]
    return [
        (f"{file.relative_to(ROOT)}::{node.name}", node)
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, Function)
    ]


def asserts(function: Function, helpers: set[str]) -> bool:
    """True if the function asserts, or calls a helper that does."""
    names = {
        node.attr if isinstance(node, ast.Attribute) else node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute | ast.Name)
    }
    return (
        any(isinstance(node, ast.Assert) for node in ast.walk(function))
        or not names.isdisjoint(helpers.union(CHECKS))
        or any(name.startswith("assert_") for name in names)
    )


def test_every_test_asserts_something():
    """Every test asserts something; running code only proves that nothing was raised."""
    known = functions()
    helpers = {f.name for _, f in known if not f.name.startswith("test_") and asserts(f, set())}
    silent = [place for place, f in known if f.name.startswith("test_") and not asserts(f, helpers)]
    assert silent == []


def test_unit_tests_mirror_the_source():
    """`tests/unit/PATH/test_NAME.py` tests the module or package PATH/NAME, or a part of it (`test_NAME_PART.py`)."""
    names = {path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.rglob("*")}
    lost = []
    for file in UNIT.rglob("test_*.py"):
        place = file.relative_to(UNIT)
        words = place.stem.removeprefix("test_").split("_")
        parts = {(place.parent / "_".join(words[:n])).as_posix() for n in range(1, len(words) + 1)}
        if names.isdisjoint(parts) and place.name != "test_fuzz.py":
            lost.append(place.as_posix())
    assert sorted(lost) == sorted(SUBJECTS)


def test_long_modules_have_tests_of_their_name():
    """The tests of a long module can be found by its path."""
    lost = [
        module.relative_to(SOURCE).as_posix()
        for module in SOURCE.rglob("*.py")
        if sum(bool(line.strip()) for line in module.read_text().splitlines()) >= LONG
        and not list((UNIT / module.relative_to(SOURCE).parent).glob(f"test_{module.stem}*.py"))
    ]
    assert sorted(lost) == sorted(ELSEWHERE)


def folder_faults(tree: ast.Module) -> Iterator[str]:
    """Uses of folders that fail when their test runs in another process or a fixture is set up again."""
    filled = set()
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("made_once"), args=[ast.BinOp(folder, ast.Div(), ast.Constant()), _]):
                filled.add(folder)
            case ast.Call(func=ast.Attribute(attr="getbasetemp")):
                yield f"line {node.lineno}: pytest's own folder, whose names all tests share; use mktemp or made_once"
            case (
                ast.Call(func=ast.Attribute(attr="mktemp"), args=[_, _])
                | ast.Call(func=ast.Attribute(attr="mktemp"), keywords=[_])
            ):
                yield f"line {node.lineno}: an unnumbered folder, which can be made only once"
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == "shared_folder" and node not in filled:
            yield f"line {node.lineno}: shared_folder, where made_once(shared_folder / NAME, make) was expected"


def test_folders_do_not_depend_on_where_tests_run():
    """Work stealing sets fixtures up in several processes and twice in one; only `made_once` fills a shared folder."""
    own = ROOT / "tests" / "fakes" / "forked_processes.py"  # it defines `shared_folder`, and holds one process there
    files = [file for folder in FOLDERS for file in sorted((ROOT / folder).rglob("*.py")) if file != own]
    assert [f"{file.name} {fault}" for file in files for fault in folder_faults(ast.parse(file.read_text()))] == []


@pytest.mark.parametrize(
    "source",
    [
        "folder = shared_folder / 'played'\nfolder.mkdir()",
        "(shared_folder / 'rows.jsonl').write_text(rows)",
        "made_once(shared_folder, make)",
        "tmp_path_factory.getbasetemp()",
        "tmp_path_factory.mktemp('played', numbered=False)",
        "tmp_path_factory.mktemp('played', False)",
    ],
)
def test_folders_that_depend_on_it_are_recognised(source):
    """A name in a shared folder that is made outside `made_once` is a fault."""
    assert len(list(folder_faults(ast.parse(source)))) == 1


def test_a_name_in_the_shared_folder_has_one_maker():
    """Two files may share a folder only if both import what fills it; otherwise the first to run would decide."""
    makers: dict[str, set[str]] = {}
    for file in sorted((ROOT / "tests").rglob("*.py")):
        tree = ast.parse(file.read_text())
        own = {node.name for node in ast.walk(tree) if isinstance(node, Function)}
        for node in ast.walk(tree):
            match node:
                case ast.Call(func=ast.Name("made_once"), args=[ast.BinOp(right=ast.Constant(value=name)), maker]):
                    place = str(file) if ast.unparse(maker) in own else ""
                    makers.setdefault(str(name), set()).add(f"{place} {ast.unparse(maker)}")
    assert len(makers) > 2
    assert {name: found for name, found in makers.items() if len(found) > 1} == {}


def test_conformance_imports_existing_names():
    """Every name of ours that `conformance/` imports exists; `make test` does not run those tests."""
    missing = []
    for file in sorted((ROOT / "conformance").rglob("*.py")):
        if file.parent.name == "clients":  # these import other people's `nat`
            continue
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("nat."):
                known = names_in(SOURCE.parent / str(node.module).replace(".", "/"))
                missing += [f"{file.name}: {node.module}.{name.name}" for name in node.names if name.name not in known]
    assert missing == []


def names_in(module: Path) -> set[str]:
    """The names that can be imported from a module or a package of ours, by its source."""
    if module.is_dir():
        names = {path.stem for path in module.iterdir()}
        return names | (names_in(module / "__init__") if (module / "__init__.py").exists() else set())
    if not module.with_suffix(".py").exists():
        return set()
    names = set()
    for node in ast.walk(ast.parse(module.with_suffix(".py").read_text())):
        if isinstance(node, Function | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(name.asname or name.name for name in node.names)
    return names
