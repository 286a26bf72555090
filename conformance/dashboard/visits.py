"""Serve the pages about runs in this process, and let a browser in another one visit them."""

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.environments import outside, program_of, python_of

from nat.dashboard.access import Access
from nat.dashboard.app import create_app
from nat.http.server import bind, listening, port_of

BROWSE = Path(__file__).with_name("browse.py")
KEY = "sk-nat-conformance"
DEADLINE_S = 300


@dataclass(frozen=True)
class Visits:
    """A browser for one server."""

    link: str

    async def __call__(self, *visits: dict[str, Any]) -> list[dict[str, Any]]:
        """What the browser found on each page; see `browse.py`."""
        axe = program_of("axe-core").parents[1] / "axe-core" / "axe.min.js"
        request = {"link": self.link, "axe": str(axe), "chromium": chromium(), "visits": visits}
        process = await asyncio.create_subprocess_exec(
            python_of("playwright"),
            BROWSE,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=outside(),
        )
        said, _ = await asyncio.wait_for(process.communicate(json.dumps(request).encode()), DEADLINE_S)
        assert process.returncode == 0
        return [json.loads(line) for line in said.splitlines()]


def chromium() -> str | None:
    """Debian's Chromium; None if it is not installed."""
    return shutil.which("chromium")


@asynccontextmanager
async def visiting(root: Path) -> AsyncIterator[Visits]:
    """Serve the runs below a folder."""
    listener = bind("127.0.0.1", 0, command="nat ui")
    app = Access(create_app(root), KEY, port=port_of(listener))
    async with listening(app, listener) as url:
        yield Visits(f"{url}/?key={KEY}")
