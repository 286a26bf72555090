"""The files that browsers get."""

import re
from hashlib import sha256

from nat.dashboard.rendering import STATIC, TEMPLATES


def test_vendored_files_are_those_that_were_released():
    """Their hashes stand beside them, and each has its licence."""
    listed = dict(line.split()[::-1] for line in (STATIC / "VENDORED.txt").read_text().splitlines() if line[0] != "#")
    assert {name: sha256((STATIC / name).read_bytes()).hexdigest() for name in listed} == listed
    assert {"htmx.LICENSE", "uPlot.LICENSE", "htmx.min.js", "uPlot.min.js", "uPlot.min.css"} == set(listed)
    own = {"VENDORED.txt", "dashboard.css", "dashboard.js", "icon.svg"}
    assert {file.name for file in STATIC.iterdir()} == own | set(listed)


def test_templates_have_no_inline_script_or_style():
    """The policy would refuse them; only the report has both, by their hashes."""
    for file in TEMPLATES.glob("*.html"):
        text = file.read_text()
        if file.name != "report.html":
            assert not re.search(r"<style|<script>|\sstyle=|\son\w+=", text), file.name
        assert "|safe" not in text
        assert "autoescape" not in text
        assert not re.search(r"(?:href|src|action)=\"https?:", text), file.name
