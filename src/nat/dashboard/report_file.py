"""`nat runs report`: a run in one HTML file, with its pictures and words, that needs nothing else and loads nothing."""

from base64 import b64encode
from dataclasses import replace
from hashlib import sha256

from markupsafe import Markup

from nat.dashboard.rendering import STATIC, render
from nat.dashboard.views import epoch_title, held_out_rows, rollout_view, run_view, with_answers
from nat.finetuning.diagnosis.gather import findings_in
from nat.reports.charts import histogram_chart, spread
from nat.reports.rollouts import RolloutChoice, chosen, whole
from nat.reports.run_page import epochs_of
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
    script, style = _static("uPlot.min.js", "dashboard.js"), _static("uPlot.min.css", "dashboard.css")
    table = epochs_of(view.report, _ROWS)
    values = {
        "view": view,
        "findings": findings_in(journal),
        "epochs": replace(table, rows=table.rows[::-1]),
        "rows": [],
        "histogram": histogram_chart(histogram(outcomes)),
        "last": None if last is None else epoch_title(Phase.TRAIN, last),
        "links": None,
        "script": Markup(script),
        "style": Markup(style),
        "policy": f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; base-uri 'none'; "
        "form-action 'none'",
    }
    if len(validations) > 1:
        before, after = validations[0], validations[-1]
        rows = with_answers(journal, spread(held_out_rows(before, after), _ROWS), before, after)
        values |= {"rows": rows, "before": before, "after": after}
    records = whole(journal, Phase.TRAIN, last or 0, chosen(outcomes, _SHOWN))
    shown = [rollout_view(each, Phase.TRAIN) for each in records]
    while True:
        page = render("report.html", most_chars=_MOST_CHARS, rollouts=shown, **values)
        if not shown or len(page.encode()) < MOST_BYTES:
            return page
        shown = shown[:-1]


def _static(*names: str) -> str:
    return "\n".join((STATIC / name).read_text("utf-8") for name in names)


def _digest(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
