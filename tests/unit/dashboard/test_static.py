"""The files that browsers get."""

import re
import shutil
import subprocess
from hashlib import sha256

import pytest

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


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_an_axis_of_small_numbers_tells_them_apart():
    """A learning rate or a KL of some millionths is not 0, 0, 0."""
    browser = """
    const chart = JSON.stringify({ x: [1, 2], xLabel: "epoch", series: [], links: [] });
    const box = { dataset: { chart }, closest: () => null, clientWidth: 300 };
    const nothing = { addEventListener() {} };
    globalThis.document = { readyState: "done", body: nothing, querySelectorAll: () => [box] };
    globalThis.getComputedStyle = () => ({ getPropertyValue: () => "" });
    globalThis.ResizeObserver = class { observe() {} };
    globalThis.matchMedia = () => nothing;
    globalThis.uPlot = function (options) {
        console.log(options.axes[1].values(this, [0, 0.000002, 0.25, 1500]).join(" "));
    };
    """
    script = browser + (STATIC / "dashboard.js").read_text()
    done = subprocess.run(["node", "-e", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0 0.000002 0.25 1500"
