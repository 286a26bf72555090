"""A chat in `nat ui` with the model of a finished run, in processes of its own."""

import json
import re
import signal
import time
from pathlib import Path

import httpx
import pytest

from e2e import test_local_run
from e2e.doc_pages import ROOT
from fakes.forked_processes import VARIABLE
from fakes.processes import NAT, Processes, await_end, environment_without, first_line

pytestmark = pytest.mark.usefixtures("forked_processes")
games = test_local_run.games
BOARD = "1 2 3\n4 5 6\n7 8 9"


def files_of(folder: Path):
    """What changes if somebody writes there."""
    return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")}


def page_after(browser, path, words, *, gone=False):
    """The page once it has these words, or has them no more."""
    for _ in range(1200):
        if (words in (text := browser.get(path).text)) is not gone:
            return text
        time.sleep(0.1)
    raise AssertionError(text)


def test_both_models_of_a_run_with_adapters_answer_and_end_with_the_dashboard(tmp_path, games):
    """The adapter is loaded on its base; the run's folder stays as it is; after SIGKILL no process is left."""
    told = test_local_run.finished(tmp_path / "runs", *games, "--json", *test_local_run.ADAPTERS).stdout
    run_dir = Path(json.loads(told)["run_dir"])
    before = files_of(run_dir)
    with Processes() as processes:
        ui = processes.start("-c", NAT, "ui", str(run_dir), cwd=ROOT, env=environment_without(VARIABLE))
        link = re.search(r"http\S+", first_line(ui))[0]
        origin = link.partition("/?")[0]
        with httpx.Client(base_url=origin, headers={"Origin": origin}, timeout=60, trust_env=False) as browser:
            home = browser.get(link, follow_redirects=True).text
            chat = re.search('href="(/runs/[^"]+)"', home)[1] + "/chat"
            assert browser.post(f"{chat}/load", headers={"Origin": "http://127.0.0.1:9"}).status_code == 403
            browser.post(f"{chat}/load")
            page_after(browser, chat, "Message to both")
            backends = [int(pid) for pid in Path(f"/proc/{ui.pid}/task/{ui.pid}/children").read_text().split()]
            browser.post(f"{chat}/say", data={"message": BOARD, "system": "", "temperature": "0"})
            text = page_after(browser, chat, 'id="stop"', gone=True)
            for title in ("Untrained", "Trained"):
                assert re.search(rf"<strong>{title}</strong></p>\n\n*<pre[^>]*>[1-9]</pre>", text), text
        assert len(backends) == 2
        ui.send_signal(signal.SIGKILL)
        for backend in backends:
            await_end(backend)
    assert files_of(run_dir) == before
