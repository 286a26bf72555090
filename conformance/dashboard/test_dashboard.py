"""`nat ui` in Chromium: what is drawn, the keyboard, axe, both colour schemes, a narrow window, and attacks."""

import asyncio
from pathlib import Path
from urllib.parse import quote

import pytest
from conformance.dashboard.visits import chromium, visiting

from fakes.attacks import TEXTS, TITLE, add_attacks
from fakes.run_records import NOON, epoch_record, rollout_record
from fakes.runs_on_disk import make_run
from nat.dashboard.report_file import report_html
from nat.dashboard.runs import slug_of
from nat.runs.journal import Journal, reading
from nat.runs.records import Phase, RunState

pytestmark = pytest.mark.skipif(chromium() is None, reason="no chromium on PATH; Debian's package is `chromium`")

PAGES = (
    "",
    "/held-out",
    "/train/1",
    "/validation/0",
    "/train/1/bin?n=0",
    "/train/1/example?id=a",
    "/train/1/rollout?id=d",
    "/train/1/rollout?id=d&colour=mask",
    "/train/99",
)


def here(run_dir: Path) -> str:
    return f"/runs/{slug_of(run_dir)}"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
async def test_pages_are_accessible_and_fit(tmp_path, width, scheme):
    """Axe has no complaint, nothing is wider than the window, and the policy has refused nothing."""
    first, second = make_run(tmp_path, "run-1"), make_run(tmp_path, "run-2", solved=(1, 2))
    compare = f"/compare?a={slug_of(first)}&b={slug_of(second)}"
    paths = ["/", compare, *(here(first) + page for page in PAGES)]
    async with visiting(tmp_path) as visits:
        found = await visits(*({"path": path, "width": width, "scheme": scheme} for path in paths))
    for path, page in zip(paths, found, strict=True):
        assert page["violations"] == [], path
        assert page["overflow"] <= 0, path
        assert page["outside"] == [], path
        assert [line for line in page["said"] if "404" not in line] == [], path


async def test_charts_are_drawn_and_lead_to_their_rollouts(tmp_path):
    """A click on a bar opens its rollouts, a click on a point its epoch; the table has the same links."""
    run_dir = make_run(tmp_path, "run-1")
    bar = {"path": f"{here(run_dir)}/train/1", "acts": [["click at", ".u-over", "0.13"], ["wait", "text=1 rollouts"]]}
    point = {"path": here(run_dir), "acts": [["click at", ".u-over", "0.99"], ["wait", "h1:has-text('Epoch 3')"]]}
    async with visiting(tmp_path) as visits:
        drawn, bars, points = await visits({"path": here(run_dir)}, bar, point)
    assert drawn["drawn"] == 3
    assert bars["path"] == f"{here(run_dir)}/train/1/bin?n=0"
    assert points["path"] == f"{here(run_dir)}/train/3"


async def test_the_keyboard_alone_reaches_a_rollout(tmp_path):
    """The first stop skips to the content; a bin of the histogram's table opens with Enter."""
    run_dir = make_run(tmp_path, "run-1")
    steps = [["focus", "summary"], ["press", "Enter"], ["press", "Tab"], ["press", "Tab"], ["press", "Enter"]]
    opened = {"path": f"{here(run_dir)}/train/1", "acts": [*steps, ["wait", "h1:has-text('reward 0.25')"]]}
    async with visiting(tmp_path) as visits:
        first, then = await visits({"path": "/", "acts": [["press", "Tab"]]}, opened)
    assert first["focus"] == "Skip to the content"
    assert then["path"] == f"{here(run_dir)}/train/1/bin?n=0"


async def test_a_page_follows_a_run(tmp_path):
    """An epoch that ends appears without a reload, and so does the end; a table that was opened stays open."""
    run_dir = make_run(tmp_path, "run-1", state=RunState.RUNNING)
    first = [["wait", "text=epoch 3 of 3"], ["click", "summary"]]
    news = ["text=epoch 4 of 3", "#state:has-text('completed')", "details th:text-is('4')"]
    waiting = {"path": here(run_dir), "acts": [*first, *(["wait", each] for each in news)]}
    async with visiting(tmp_path) as visits:
        browsing = asyncio.create_task(visits(waiting))
        await asyncio.sleep(8)  # by then the page is open, or the first wait fails
        with Journal.open(run_dir) as journal:
            journal.record(epoch_record(3, 0.9, num_rollouts=192))
            await asyncio.sleep(3)
            journal.set_state(RunState.COMPLETED, at=NOON)
        (page,) = await browsing
    assert "Training reward 0.300 → 0.900" in page["text"]
    assert page["drawn"] == 3
    assert page["said"] == []


async def test_a_rollout_full_of_attacks_is_text(tmp_path):
    """No script, style, link, refresh or control character of a rollout takes effect, in no page and no report."""
    run_dir = make_run(tmp_path, "run-1")
    add_attacks(run_dir)
    name = quote(f"<b>{TEXTS[0]}")
    pages = [f"/rollout?id={name}&generation={number}" for number in range(len(TEXTS) + 2)]
    paths = [f"{here(run_dir)}/train/8{page}" for page in ("", f"/example?id={name}", "/bin?n=0", *pages)]
    report = tmp_path / "report.html"
    with reading(run_dir) as journal:
        report.write_text(report_html(journal))
    async with visiting(tmp_path) as visits:
        found = await visits(*({"path": path, "width": 360} for path in [*paths, report.as_uri()]))
    for path, page in zip([*paths, report.as_uri()], found, strict=True):
        assert page["title"] != TITLE, path
        assert page["said"] == [], path
        assert page["outside"] == [], path
        assert page["overflow"] <= 0, path
        assert page["violations"] == [], path
        assert not set(page["text"]) & set("\x1b\x00\u202e"), path


async def test_a_report_opens_from_a_file(tmp_path):
    """It draws its charts under its own policy, and asks for nothing."""
    run_dir, report = make_run(tmp_path, "run-1"), tmp_path / "report.html"
    with reading(run_dir) as journal:
        report.write_text(report_html(journal))
    async with visiting(tmp_path) as visits:
        (page,) = await visits({"path": report.as_uri()})
    assert page["drawn"] == 4
    assert (page["violations"], page["said"], page["outside"]) == ([], [], [])


async def test_a_hundred_thousand_rollouts_stay_quick(tmp_path):
    """Of the run and of an epoch, the first paint comes within a second."""
    run_dir = make_run(tmp_path, "run-1")
    with Journal.open(run_dir) as journal:
        for epoch in range(100):
            records = [rollout_record(f"e{n % 125}", n // 125, reward=n / 1000) for n in range(1000)]
            journal.record_rollouts(Phase.TRAIN, epoch, records)
            journal.record(epoch_record(epoch, epoch / 100, num_rollouts=1000))
    async with visiting(tmp_path) as visits:
        found = await visits(*({"path": here(run_dir) + page} for page in ("", "/train/50", "/train/50/bin?n=3")))
    assert max(page["paint_ms"] for page in found) < 1000
