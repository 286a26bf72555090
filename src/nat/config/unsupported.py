"""What the wider toolkit's YAML may say and this project does not do."""

import logging

from nat.config.files import Tree
from nat.config.findings import Findings, dotted

logger = logging.getLogger(__name__)

SECTIONS = {
    "embedders": "embedders",
    "memory": "memory stores",
    "object_stores": "object stores",
    "retrievers": "retrievers",
    "authentication": "authentication providers",
    "middleware": "middleware",
    "function_groups": "function groups",
    "optimizer": "the optimizer",
}

WITHOUT_EFFECT = (
    ("general", "use_uvloop"),
    ("general", "telemetry"),
    ("general", "front_end"),
    ("eval", "general", "workflow_alias"),
    ("eval", "general", "profiler"),
    ("eval", "general", "validate_llm_endpoints"),
)
"""Keys that are let pass with a warning, since they change nothing that a finetuning run is about."""


def drop_unsupported(tree: Tree, findings: Findings) -> Tree:
    """The tree without what has no effect here; a section whose components would be missed is a finding."""
    kept = dict(tree)
    for section, what in SECTIONS.items():
        if kept.pop(section, None):
            findings.add((section,), f"{what} are not part of this project; remove the section")
    for path in WITHOUT_EFFECT:
        kept = _without(kept, path, ".".join(path))
    return kept


def _without(node: Tree, path: tuple[str, ...], whole: str) -> Tree:
    key, rest = path[0], path[1:]
    if key not in node:
        return node
    if not rest:
        logger.warning("%s has no effect here", dotted((whole,)))
        return {k: v for k, v in node.items() if k != key}
    child = node[key]
    return {**node, key: _without(child, rest, whole)} if isinstance(child, dict) else node
