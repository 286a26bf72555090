"""A dead address is told at once, by the option that has it; a server that only takes its time is left alone."""

import asyncio
import socket

import pytest

from fakes.processes import free_port
from nat.errors import BackendUnreachable
from nat.plugins.llms.reachable import check_listening

OPTION = "llms.student.base_url"


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


async def test_nobody_listens():
    """The error names option and address, without what else may stand in the URL."""
    port = free_port()
    with pytest.raises(BackendUnreachable) as error:
        await check_listening(f"http://me:secret@127.0.0.1:{port}/v1?key=secret", option=OPTION, between=0)
    assert f"{OPTION}: nobody answers at http://127.0.0.1:{port}: " in str(error.value)
    assert "secret" not in str(error.value)


async def test_a_name_that_nobody_knows():
    """It is not asked for again."""
    with pytest.raises(BackendUnreachable, match=r"nobody\.invalid:80"):
        await check_listening("http://nobody.invalid/v1", option=OPTION, between=1000)


async def test_a_server_that_is_started_again_is_waited_for():
    """It refuses for a moment."""
    port = free_port()
    checked = asyncio.create_task(check_listening(f"http://127.0.0.1:{port}", option=OPTION, between=0.3))
    await asyncio.sleep(0.1)
    async with await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", port):
        await checked


async def test_a_server_that_never_answers_is_slow_and_not_dead():
    """It takes the connection; what it does with requests is for the rollouts' deadline."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        await check_listening(f"http://127.0.0.1:{listener.getsockname()[1]}", option=OPTION)


async def test_behind_a_proxy_nothing_is_tried(monkeypatch):
    """The proxy may know names and ways that this machine does not."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("no_proxy", "")
    await check_listening("http://nobody.invalid/v1", option=OPTION)
