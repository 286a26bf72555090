"""The table of epochs, wherever it is shown."""

import re
from io import StringIO
from pathlib import Path

from rich.console import Console

from fakes.run_records import epoch_record, validation_record
from fakes.runs_on_disk import make_run
from nat.cli.progress import LiveProgress
from nat.dashboard.rendering import render
from nat.dashboard.report_file import report_html
from nat.dashboard.views import Links, run_view
from nat.reports.epoch_table import epoch_table
from nat.reports.run_page import epochs_of, run_page, run_report
from nat.runs.journal import reading


def test_an_imitated_file_has_a_loss_and_no_reward():
    """The scores of its rows are not the model's; the columns that no epoch fills are left out."""
    loss = {"train/loss": 1.25}
    shown = epoch_table(
        [epoch_record(0, 1.0, played=False, metrics=loss), epoch_record(1, 0.5)], [validation_record(0, {"x": 0.1})]
    )
    assert [row[:3] for row in shown.rows] == [("before", "", "0.100"), ("1", "loss 1.250", ""), ("2", "0.500", "")]
    assert not {"KL", "phase", "stale rows"} & {*shown.header}


def test_all_places_show_the_same_table(tmp_path):
    """The live view, the page in the terminal, `nat ui` and the report have the same columns, and count from 1."""
    with reading(make_run(tmp_path, "run-1")) as journal:
        report, html = run_report(journal), report_html(journal)
        browser = render("_epochs.html", epochs=epochs_of(report, 3), view=run_view(journal), links=Links("/runs/r"))
    expected = epochs_of(report, 12)
    output = Console(file=StringIO(), force_terminal=True, width=120)
    with LiveProgress(output) as live:
        live.run_started("run-1", Path("runs/x"), 3)
        for event in (*report.validations, *report.epochs):
            live(event)
    for text in (html[html.index('aria-label="Table: epochs"') :], browser):
        assert re.findall(r'<th scope="col">(.*?)</th>', text)[: len(expected.header)] == expected.header
    assert re.findall(r'<th scope="row">(?:<a [^>]*>)?(\w+)<', browser) == ["before", "1", "2", "3"]
    for text in (run_page(report), output.file.getvalue()):
        lines = [re.split(r"  +", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line).strip()) for line in text.splitlines()]
        assert expected.header in lines
        assert [row[:2] for row in lines].count(["3", "0.500"]) >= 1


def test_the_table_fits_a_terminal_of_eighty_columns():
    """No cell is cut, with all metrics of a usual run."""
    output = Console(file=StringIO(), force_terminal=True, width=80)
    metrics = {"train/approx_kl": 0.000123, "train/grad_norm": 1.72, "train/entropy": 0.571}
    with LiveProgress(output) as live:
        live.run_started("run-1", Path("runs/x"), 3)
        live(validation_record(0))
        live(epoch_record(9, seconds=100.1, metrics=metrics, num_rollouts=1024))
    assert "0.000123" in output.file.getvalue()
    assert "…" not in output.file.getvalue()
