"""`nat ui` and `nat runs report`."""

import asyncio

import httpx
import pytest

from fakes.runs_on_disk import make_run
from nat.cli.commands import ui as ui_module
from nat.cli.main import exit_code
from nat.dashboard.serve import serve


async def test_it_serves_on_loopback_and_prints_the_link(tmp_path, capsys):
    """The link has the key although the output is redacted; without it, nothing is shown."""
    make_run(tmp_path, "run-1")
    link = asyncio.get_running_loop().create_future()
    serving = asyncio.create_task(serve(tmp_path, 0, link.set_result))
    try:
        url = await asyncio.wait_for(link, 20)
        async with httpx.AsyncClient(follow_redirects=True) as browser:
            assert url.startswith("http://127.0.0.1:")
            assert (await browser.get(url.partition("?")[0])).status_code == 403
            assert "run-1" in (await browser.get(url)).text
            elsewhere = await browser.get(url, headers={"host": "example.org"})
            assert elsewhere.status_code == 421
    finally:
        serving.cancel()
        await asyncio.wait([serving])
    ui_module._greet(url)
    assert url in capsys.readouterr().out


@pytest.mark.parametrize("output", [None, "sent.html"])
def test_a_report_is_one_file(tmp_path, monkeypatch, capsys, output):
    """By default it has the name of the run's folder, and lies in the current one."""
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs", "run-1")
    arguments = [] if output is None else ["--output", output]
    assert exit_code(["runs", "report", "runs/run-1", *arguments]) == 0
    name = output or "run-1.html"
    assert f"Wrote {name}" in capsys.readouterr().out
    assert (tmp_path / name).read_text().startswith("<!doctype html>")
