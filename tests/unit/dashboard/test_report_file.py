"""The report: one file that needs nothing else."""

import json
import re
from base64 import b64encode
from hashlib import sha256
from html import unescape

from fakes.attacks import TITLE, WORD, add_attacks
from fakes.run_records import epoch_record
from fakes.runs_on_disk import make_run
from nat.dashboard.report_file import MOST_BYTES, report_html
from nat.runs.journal import Journal, reading


def report(run_dir):
    with reading(run_dir) as journal:
        return report_html(journal)


def test_it_has_the_pictures_and_the_words(tmp_path):
    """What the run's page shows, the last epoch's histogram, held-out examples, and some rollouts."""
    text = report(make_run(tmp_path, "run-1"))
    assert "Improved: 0.200 → 0.800" in text
    assert text.count("data-chart=") >= 3
    assert "No cause found" in text
    assert "Example d, generation 0: reward 0.750" in text
    assert '<td class="words">What is held-3?</td><td class="words">4</td>' in text
    assert "no reward; left out of training: the workflow raised an error" in text


def test_it_loads_nothing(tmp_path):
    """Its own policy admits its script and its style by hash, and no address leads out of it."""
    text = report(make_run(tmp_path, "run-1"))
    assert not re.search(
        r"(?:href|src|action|hx-\w+)=", text.replace(re.search("<script>(.*)</script>", text, re.DOTALL)[1], "")
    )
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1].replace("&#39;", "'")
    for tag in ("script", "style"):
        content = re.search(f"<{tag}>(.*?)</{tag}>", text, re.DOTALL)[1]
        digest = b64encode(sha256(content.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy.replace("&#43;", "+")


def test_hostile_rollouts_are_text_and_do_not_make_it_large(tmp_path):
    """A megabyte in each field is cut, and control characters are visible."""
    run_dir = make_run(tmp_path, "run-1")
    add_attacks(run_dir)
    text = report(run_dir)
    assert len(text.encode()) < MOST_BYTES
    assert not set(text) & set("\x00\x1b\u202e")
    assert f"<script>document.title='{TITLE}'" not in text


def test_names_of_a_megabyte_do_not_make_it_large(tmp_path):
    """Names and messages are cut like texts; what is drawn is whole, however many points it has."""
    run_dir = make_run(tmp_path, "run-1", message=WORD)
    with Journal.open(run_dir) as journal:
        for epoch in range(1000):
            more = {"metrics": {"train/approx_kl": 0.01}, "scores_beside": {WORD: 1 / 3}} if epoch < 2 else {}
            journal.record(epoch_record(epoch, 1 / (epoch + 2), **more))
    text = report(run_dir)
    assert len(text.encode()) < MOST_BYTES
    rewards, *_ = (json.loads(unescape(found)) for found in re.findall('data-chart="([^"]*)"', text))
    assert len(rewards["x"]) == 1001  # with the validation before training


def test_a_run_without_an_epoch_has_one(tmp_path):
    """A run that was killed early."""
    assert "No epoch has ended." in report(make_run(tmp_path, "run-1", solved=()))
