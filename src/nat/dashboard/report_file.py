"""`nat runs report`: a run in one HTML file, with its pictures and words, that needs nothing else and loads nothing."""

from base64 import b64encode
from hashlib import sha256

from markupsafe import Markup

from nat.dashboard.rendering import STATIC, render
from nat.dashboard.views import epoch_title, held_out_rows, rollout_view, run_view
from nat.finetuning.diagnosis.gather import findings_in
from nat.reports.charts import histogram_chart, spread
from nat.reports.rollouts import RolloutChoice, chosen, whole
from nat.runs.journal import Journal
from nat.runs.outcomes import histogram
from nat.runs.records import Phase

MOST_BYTES = 2_000_000
_SHOWN = RolloutChoice(best=2, worst=2, failed=1)
_MOST_CHARS = 4000
_ROWS = 100
"""Rows of a table of epochs or examples."""


def report_html(journal: Journal) -> str:
    """The page, of less than `MOST_BYTES`: rollouts that would make it larger are left out."""
    view, played, validations = run_view(journal), journal.played(Phase.TRAIN), journal.validations()
    last = played[-1] if played else None
    outcomes = [] if last is None else journal.outcomes(Phase.TRAIN, last)
    script, style = _script(), _style()
    values = {
        "view": view,
        "findings": findings_in(journal),
        "epochs": spread(view.report.epochs, _ROWS)[::-1],
        "rows": spread(held_out_rows(validations[0], validations[-1]), _ROWS) if len(validations) > 1 else [],
        "before": validations[0] if validations else None,
        "after": validations[-1] if validations else None,
        "histogram": histogram_chart(histogram(outcomes)),
        "last": None if last is None else epoch_title(Phase.TRAIN, last),
        "links": None,
        "script": Markup(script),
        "style": Markup(style),
        "policy": f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; base-uri 'none'; "
        "form-action 'none'",
    }
    records = whole(journal, Phase.TRAIN, last or 0, chosen(outcomes, _SHOWN))
    shown = [rollout_view(each, Phase.TRAIN) for each in records]
    while True:
        page = render("report.html", most_chars=_MOST_CHARS, rollouts=shown, **values)
        if not shown or len(page.encode()) < MOST_BYTES:
            return page
        shown = shown[:-1]


def _script() -> str:
    return "\n".join((STATIC / name).read_text("utf-8") for name in ("uPlot.min.js", "dashboard.js"))


def _style() -> str:
    return "\n".join((STATIC / name).read_text("utf-8") for name in ("uPlot.min.css", "dashboard.css"))


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
