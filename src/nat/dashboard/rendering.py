"""Templates to HTML: whatever a run's records say is escaped, and its control characters are made visible."""

import json
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from nat.data_models.score import is_score
from nat.reports.charts import Chart
from nat.reports.text import one_line, printable

TEMPLATES = Path(__file__).parent / "templates"
STATIC = Path(__file__).parent / "static"
MOST_CHARS = 20_000
"""Characters of a text that a page shows."""
_SHADES = 10
_LABEL_CHARS = 200
"""Characters of a series' name in a picture."""


def render(template: str, *, most_chars: int = MOST_CHARS, **values: Any) -> str:
    """The page; strings in `values` are data, never markup. Longer texts of rollouts are cut to `most_chars`."""
    return _ENVIRONMENT.get_template(template).render(values, most_chars=most_chars)


def _visible(value: Any) -> Any:
    """Every printed value passes here, before it is escaped; markup is only what templates made.

    Whatever a journal has as a name or a message, no page has more than `MOST_CHARS` of it.
    """
    if value is None:
        return ""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return printable(value if len(value) <= MOST_CHARS else f"{value[:MOST_CHARS]}…")


def number(value: float | None) -> str:
    """A reward or a score; a dash if there is none."""
    return "\N{EN DASH}" if value is None else f"{value:.3f}"


def shade(value: float | None, low: float, high: float) -> str:
    """The class of a cell between the lowest and the highest reward."""
    if value is None or not is_score(value):
        return "none"
    return f"g{round(_SHADES * (value - low) / (high - low)) if high > low else _SHADES // 2}"


def chart_json(chart: Chart) -> Markup:
    """What the browser draws, as JSON of ASCII alone, escaped and never cut."""
    series = [
        {
            "label": printable(one_line(each.label, _LABEL_CHARS)),
            "mark": each.mark.value,
            "values": _plain(each.values),
            "low": _plain(each.low),
            "high": _plain(each.high),
        }
        for each in chart.series
    ]
    drawn = {
        "x": list(chart.x),
        "xLabel": chart.x_label,
        "series": series,
        "range": chart.y_range,
        "links": list(chart.links),
    }
    return escape(json.dumps(drawn, separators=(",", ":")))


def _plain(values: Any) -> list[float | None]:
    return [value if value is not None and is_score(value) else None for value in values]


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"chart_json": chart_json, "in_line": one_line, "number": number}
    return environment


_ENVIRONMENT = _environment()
