"""The history can be read as a list: CONTRIBUTING.md says how a commit is described."""

import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RULE_SINCE = "295f86be5234c482c1c0418ba8588ac39a93065d"
"""The last commit before the rule."""
SUBJECT_CHARACTERS = 72


def test_each_commit_has_a_short_subject():
    """A subject has at most 72 characters; a checkout without the history cannot tell."""
    command = ["git", "log", "--format=%h %s", f"{RULE_SINCE}..HEAD"]
    try:
        log = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - our own words
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("no git history that reaches back to the rule")
    lines = log.stdout.splitlines()
    assert [line for line in lines if len(line.partition(" ")[2]) > SUBJECT_CHARACTERS] == []
