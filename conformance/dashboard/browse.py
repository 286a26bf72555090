"""Visits pages with Chromium, as the environment `playwright` has it, and prints what was found there.

It reads one JSON object: the link with the key, the paths of Chromium and of axe, and the visits. Each visit has a
path, a width, a colour scheme and acts; its result is a line of JSON.
"""

import json
import sys
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

HEIGHT = 800
DEADLINE_MS = 20_000
AXE = """axe.run().then((found) => JSON.stringify(found.violations.map(
    (each) => `${each.id}: ${each.nodes[0].html} ${each.nodes[0].failureSummary}`)))"""
PAINT_MS = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
OVERFLOW = """Math.max(...[document.documentElement, ...document.querySelectorAll(".content")].map(
    (each) => each.scrollWidth - each.clientWidth))"""  # the site's column of text could scroll as a whole
DRAWN = "[...document.querySelectorAll('.plot canvas')].filter((canvas) => canvas.width > 50).length"


def act(page: Page, name: str, *given: str) -> None:
    """One thing that a user does, or waits for."""
    match name:
        case "press":
            page.keyboard.press(*given)
        case "focus":
            page.focus(*given)
        case "wait":
            page.wait_for_selector(*given)
        case "click":
            page.click(*given)
        case "fill":
            page.fill(*given)
        case "click at":
            box = page.locator(given[0]).first.bounding_box()
            page.mouse.move(box["x"] + box["width"] * float(given[1]), box["y"] + box["height"] / 2)
            page.wait_for_timeout(100)
            page.mouse.down()
            page.mouse.up()
        case "shot":
            page.screenshot(path=given[0])
        case _:
            raise ValueError(name)


def visited(browser: Browser, link: str, axe: str, visit: dict) -> dict:
    """What a page is after the acts, and what it did meanwhile."""
    context = browser.new_context(
        viewport={"width": visit.get("width", 1280), "height": visit.get("height", HEIGHT)},
        color_scheme=visit.get("scheme", "light"),
    )
    context.set_default_timeout(DEADLINE_MS)
    page = context.new_page()
    home, said, outside = link.partition("/?")[0], [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("dialog", lambda dialog: said.append(dialog.message))
    page.on("request", lambda request: None if request.url.startswith(home) else outside.append(request.url))
    page.goto(link)
    page.goto(visit["path"] if "://" in visit["path"] else home + visit["path"])
    page.wait_for_load_state("networkidle")
    for each in visit.get("acts", ()):
        act(page, *each)
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(100)
    developer = context.new_cdp_session(page)  # its scripts are not the page's, so the policy lets them run
    developer.send("Runtime.evaluate", {"expression": axe})
    found = developer.send("Runtime.evaluate", {"expression": AXE, "awaitPromise": True})
    result = {
        "violations": json.loads(found["result"]["value"]),
        "overflow": page.evaluate(OVERFLOW),
        "paint_ms": page.evaluate(PAINT_MS),
        "drawn": page.evaluate(DRAWN),
        "title": page.title(),
        "path": page.url.removeprefix(home),
        "text": page.inner_text("body"),
        "focus": page.evaluate("document.activeElement.textContent.trim().slice(0, 80)"),
        "said": said,
        "outside": [url for url in outside if url != visit["path"]],
    }
    context.close()
    return result


def main() -> None:
    """Answer the request on stdin."""
    request = json.load(sys.stdin)
    axe = Path(request["axe"]).read_text()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=request["chromium"], args=["--no-sandbox"])
        for visit in request["visits"]:
            print(json.dumps(visited(browser, request["link"], axe, visit)), flush=True)
        browser.close()


if __name__ == "__main__":
    main()
