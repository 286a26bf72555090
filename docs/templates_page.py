"""The page `reference/templates.md`: what the server makes of public chat templates, by playing with each one.

The project stores none of them. The variable NAT_TEMPLATES names a folder with a folder for each collection; without
it, the page stays as it is.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import Iterable
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from fakes.template_play import Played, played

PAGE = Path(__file__).parent / "reference" / "templates.md"
VARIABLE = "NAT_TEMPLATES"
COLLECTIONS = {"llama_cpp": "Templates of llama.cpp's collection", "vllm_trl": "Templates of vLLM and TRL"}
_MARKS = {"lfm2": ("<|tool_call_start|>", "<|tool_call_end|>")}
"""Special tokens that a family's tokenizers have and its templates do not write."""
_VARIANTS = {
    "Qwen-Qwen3-0.6B": {"enable_thinking": False},
    "Qwen3.5-4B": {"enable_thinking": False},
    "deepseek-ai-DeepSeek-V3.1": {"thinking": True},
    "google-gemma-4-31B-it": {"enable_thinking": True},
    "poolside-Laguna-XS.2": {"enable_thinking": True},
}
"""Templates of the first collection that are also played with other than the usual thinking."""
HEAD = """\
# What the server makes of chat templates

`NAT_TEMPLATES=FOLDER make docs` generates this page: it plays with public templates of model families, which the
project does not store. The server is the real one; in place of a model, a script writes what the template itself would
write, in tokens as no tokenizer would split it. [Which model needs what](../start/your_model.md) says what to set.
The columns; a `-` stands for what a template does not have:

- **format**: where the format of calls and thinking comes from, the template or a family that is known here; **none**
  if no known one reads the calls.
- **calls**: one call, several calls in an answer, and the same in a stream.
- **cut, malformed**: a call that the token limit cuts off, or that lacks a quote, is no call, and its text is kept.
- **thinking**: it comes back as `reasoning_content`; the next prompt of a tool loop has it, though no client sends it.
- **null**: an answer that is a call alone, with `content: null`, can be sent back.
- **rows**: training rows of a tool loop (two calls and an answer), and with the user's next turn; 1 is exact.
- **drift**: why a prompt did not continue the sampled tokens, and in which of the four prompts.

With `template_rewrites` the template writes earlier answers otherwise than they were sampled: it drops the thinking of
earlier turns once the user speaks (only prompt 4 drifts, and the loop before it is exact), or parts of the prompt that
it wrote for the answer. `no_end_mark` means that no special token ends a turn, so its end is not found. Each further
row repeats the prompt; no sampled token is lost.
"""
COLUMNS = "| template | format | calls | cut, malformed | thinking | null | rows | drift |\n" + "|---" * 8 + "|\n"


def templates_page(folder: Path | None = None) -> str:
    """The page for the folder, by default that of the variable; the stored page if there is none."""
    named = os.environ.get(VARIABLE)
    folder = folder or (Path(named) if named else None)
    if folder is None or not folder.is_dir():
        return PAGE.read_text(encoding="utf-8")
    logging.disable(logging.WARNING)  # a table says which calls may be lost
    return HEAD + "".join(_collection(folder / name, title) for name, title in COLLECTIONS.items())


def _collection(folder: Path, title: str) -> str:
    texts = {file.stem: file.read_text("utf-8") for file in sorted(folder.glob("*.jinja"))}

    async def play(name: str, **variables: bool) -> Played:
        marks = [mark for family, own in _MARKS.items() if family in name.lower() for mark in own]
        return await played(texts[name], marks=marks, **variables)

    async def every() -> tuple[dict[str, Played], dict[str, Played]]:
        others = {name: variables for name, variables in _VARIANTS.items() if name in texts}
        return {name: await play(name) for name in texts}, {
            f"{name}` with `{json.dumps(variables)}": await play(name, **variables)
            for name, variables in others.items()
        }

    found, variants = asyncio.run(every())
    rows = "".join(_row(name, each) for name, each in (found | variants).items() if not each.renders)
    return (
        f"\n## {title}\n\n{_summary(list(found.values()))}\n\n{COLUMNS}{rows}"
        + _listed("Not rendered", {name: each.renders for name, each in found.items()})
        + _listed("No known format reads the calls", {name: each.tried for name, each in found.items()})
    )


def _listed(title: str, problems: dict[str, str]) -> str:
    lines = [f"- `{name}`: {text.splitlines()[0][:200]}\n" for name, text in problems.items() if text]
    return f"\n{title}:\n\n{''.join(lines)}" if lines else ""


def _summary(found: list[Played]) -> str:
    calling = [each for each in found if each.writes_calls]
    silent = [each for each in found if not (each.renders or each.writes_calls)]
    read, known = sum(map(_reads, calling)), sum(not each.tried for each in silent)
    exact = sum(each.loop_rows == 1 for each in calling)
    return (
        f"Of {len(found)}, {len(calling) + len(silent)} render. {len(calling)} write calls: {read} are read back, and "
        f"{exact} are exact in a tool loop. {len(silent)} write none: the formats of {known} are known all the same, "
        "and the others are read as Hermes, with a warning."
    )


def _reads(found: Played) -> bool:
    return bool(found.one and found.streamed and found.cut and found.several is not False)


def _row(name: str, found: Played) -> str:
    source = "template" if found.format.startswith("found") else found.format
    drift = ", ".join(dict.fromkeys(each.partition(" ")[0] for each in found.drift))
    where = ", ".join(each.partition("(")[2].rstrip(")") for each in found.drift)
    failed = "; ".join(f"{turn}: {problem.splitlines()[0]}" for turn, problem in found.failed.items())
    cells = [
        f"`{name}`",
        "**none**" if found.tried else source,
        _words([found.one, found.several, found.streamed]),
        _words([found.cut, found.malformed]),
        _words([found.reasoning, found.kept]),
        _words([found.null]),
        f"{found.loop_rows or '-'}, {found.rows or '-'}",
        failed.replace("|", "\\|") or (f"{drift} ({where})" if drift else ""),
    ]
    return f"| {' | '.join(cells)} |\n"


def _words(values: Iterable[bool | None]) -> str:
    """One word if all are equal."""
    words = [{True: "yes", False: "**no**", None: "-"}[value] for value in values]
    return words[0] if len(set(words)) == 1 else ", ".join(words)
