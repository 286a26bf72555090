"""Check that the YAML blocks of the documentation load."""

import os
import re
from pathlib import Path

from e2e.doc_pages import ROOT, Block
from nat.config.components import ComponentParser
from nat.config.defaults import with_defaults
from nat.config.findings import Findings
from nat.config.load import parse_config
from nat.config.sources import deep_merge, expand_variables, parse_yaml, read_tree
from nat.config.validation import drop_unsupported, validate
from nat.data_models.config import Config
from nat.registry.catalog import current_catalog

_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
"""A variable without a default, which must be set."""


_TRAINS = {"llms": {"student": {"_type": "local", "model": "some_model"}}, "finetuning": {"enabled": True}}
"""What a fragment is a part of, where it does not show these sections."""


def check_configuration(block: Block) -> None:
    """Check a block: with a workflow it is a whole file and must load; otherwise it is a fragment of known sections."""
    tree = parse_yaml(block.text)
    assert isinstance(tree, dict), "a configuration is a mapping"
    names = [braced or plain for braced, plain in _VARIABLE.findall(block.text)]
    environ = {**os.environ, **{name: "http://localhost" if name.endswith("URL") else "0" for name in names}}
    if isinstance(base := tree.pop("base", None), str):
        file = Path(base) if Path(base).exists() else ROOT / base
        tree = deep_merge(read_tree(file), tree)
    if "workflow" in tree and "llms" in tree:
        parse_config(tree, source=block.place, environ=environ)
    else:
        _check_fragment(tree, block, environ)


def _check_fragment(tree: dict, block: Block, environ: dict[str, str]) -> None:
    """Check a fragment as a whole file, except for references to sections that the block does not show."""
    unknown = set(tree) - set(Config.model_fields)
    assert not unknown, f"no sections: {sorted(unknown)}"
    findings = Findings()
    filled = expand_variables(tree, environ, findings)
    raw = drop_unsupported(_TRAINS | filled.tree, findings, current_catalog())
    raw = with_defaults(raw, current_catalog())
    parsed = ComponentParser(current_catalog(), filled.texts, findings).parse_all(raw)
    for name in ("general", "eval", "finetuning"):
        if name in parsed:
            validate(Config.model_fields[name].annotation, parsed[name], (name,), filled.texts, findings)
    findings.raise_if_any(block.place)
