"""Check that the YAML blocks of the documentation load."""

import os
import re
from pathlib import Path

from e2e.doc_pages import ROOT, Block
from nat.config.load import parse_config
from nat.config.sources import deep_merge, parse_yaml, read_tree
from nat.data_models.config import Config
from nat.errors import ConfigError

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
    try:
        parse_config(_TRAINS | tree, source=block.place, environ=environ)
    except ConfigError as error:
        wrong = [each for each in error.findings if " is not under " not in each and not each.startswith("imports.")]
        assert not wrong, wrong
