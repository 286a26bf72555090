"""A configuration at a glance; pure."""

from nat.config.components import NAMED_SECTIONS
from nat.data_models.common import TypedBaseModel
from nat.data_models.config import Config
from nat.data_models.function import EmptyFunctionConfig

Row = tuple[str, str, str]
"""Section, name and type of one component."""


def summary_rows(config: Config) -> list[Row]:
    """Every component of the configuration, in the order of the sections."""
    rows: list[Row] = []
    for path, group in NAMED_SECTIONS.items():
        section: object = config
        for key in path:
            section = getattr(section, str(key))
        assert isinstance(section, dict), "named sections are mappings"
        rows += [_row(str(group), name, component) for name, component in section.items()]
    if not isinstance(config.workflow, EmptyFunctionConfig):
        rows.append(_row("workflow", "", config.workflow))
    if config.eval.general.dataset is not None:
        rows.append(_row("eval.general.dataset", "", config.eval.general.dataset))
    return rows


def _row(section: str, name: str, component: TypedBaseModel) -> Row:
    return section, name, component.static_type() or ""
