"""Only whoever has the link reads the pages."""

import httpx
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from nat.dashboard.access import Access

KEY = "sk-nat-right"


@pytest.fixture
def browser():
    app = Starlette(routes=[Route("/{path:path}", lambda _: PlainTextResponse("page"), methods=["GET", "POST"])])
    transport = httpx.ASGITransport(Access(app, KEY, port=8000))
    return httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")


async def test_the_link_gives_a_cookie_and_leads_to_the_page_without_the_key(browser):
    """So the key is in no history, and scripts cannot read it."""
    async with browser:
        response = await browser.get(f"/runs/a?key={KEY}&page=2")
        assert (response.status_code, response.headers["location"]) == (303, "/runs/a?page=2")
        assert "HttpOnly" in response.headers["set-cookie"]
        assert (await browser.get("/runs/a")).text == "page"


@pytest.mark.parametrize("start", [b"//", b"/\\", b"/\\/"])
async def test_the_link_leads_nowhere_else(start):
    """`//host` in the path would be another server, and browsers read a backslash as a slash."""
    sent = []

    async def send(message):
        sent.append(message)

    path = {"raw_path": start + b"example.org/x", "query_string": f"key={KEY}".encode()}
    await Access(None, KEY, port=8000)({"type": "http", "headers": [], **path}, None, send)
    assert dict(sent[0]["headers"])[b"location"] == b"/example.org/x"


async def test_cookies_of_other_programs_do_not_hide_the_key(browser):
    """Browsers send what other servers of this host have set, and nobody checks its form."""
    async with browser:
        response = await browser.get("/", headers={"cookie": f'seen=["a"]; {{"b": 1}}; [x]=1; nat_ui_8000={KEY}'})
        assert response.text == "page"


@pytest.mark.parametrize("query", ["", "?key=", "?key=wrong", "?key=%ff", f"?other={KEY}"])
@pytest.mark.parametrize("cookie", ["", "nat_ui_8000=wrong", f"nat_ui_9000={KEY}", 'nat_ui_8000="', "=;=,"])
async def test_without_the_key_there_is_nothing(browser, query, cookie):
    """A wrong key, and the cookie of another port."""
    async with browser:
        response = await browser.get(f"/{query}", headers={"cookie": cookie})
        assert response.status_code == 403
        assert "page" not in response.text.split()[2:]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
async def test_pages_change_nothing(browser, method):
    """Only reading is allowed, even with the key."""
    async with browser:
        response = await browser.request(method, "/", headers={"cookie": f"nat_ui_8000={KEY}"})
        assert response.status_code == 403


async def test_every_response_forbids_what_pages_do_not_need(browser):
    """Also a refusal: no inline script or style, no other server, no frame, no copy in a cache."""
    async with browser:
        for response in (await browser.get("/"), await browser.get(f"/?key={KEY}"), await browser.get("/")):
            policy = response.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy
            assert response.headers["cache-control"] == "no-store"
            assert response.headers["x-content-type-options"] == "nosniff"
