"""What the C library keeps of freed memory."""

import platform
import subprocess
import sys

import pytest

RUN = """
from pathlib import Path
from nat.heap import keep_free_pages, return_free_pages

def megabytes():
    fields = Path("/proc/self/status").read_text().partition("RssAnon:")[2].split()
    return int(fields[0]) / 1024

{first}
blocks = [bytearray(b"x" * 2**22) for _ in range(40)]
full = megabytes()
del blocks
kept = megabytes()
return_free_pages()
print(full - kept > 100, full - megabytes() > 100)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the settings are glibc's")
@pytest.mark.parametrize(("first", "returned"), [("", "True True"), ("keep_free_pages()", "False True")])
def test_freed_pages_are_kept_until_they_are_returned(first, returned):
    """160 MB in blocks of 4 MB: by default they are given back at once, else when somebody asks for it."""
    command = [sys.executable, "-c", RUN.format(first=first)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stdout.strip() == returned
