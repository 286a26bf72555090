"""The commit history follows the rules of CONTRIBUTING.md."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULE_SINCE = "295f86be5234c482c1c0418ba8588ac39a93065d"
"""The last commit from before the rule."""
SUBJECT_CHARACTERS = 72


def test_each_commit_has_a_short_subject():
    """A commit's subject has at most 72 characters; the test is skipped without the history."""
    command = ["git", "log", "--format=%h %s", f"{RULE_SINCE}..HEAD"]
    try:
        log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own words
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no git history that reaches back to the rule")
    lines = log.stdout.splitlines()
    assert [line for line in lines if len(line.partition(" ")[2]) > SUBJECT_CHARACTERS] == []
