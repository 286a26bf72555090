"""Take pictures of pages with Chromium, as the environment `playwright` has it.

It reads one JSON object from stdin: the path of Chromium, and the shots. Each has a URL, a size in pixels, a file, and
acts; see `act`.
"""

import json
import sys

from playwright.sync_api import Page, sync_playwright

DEADLINE_MS = 30_000
DRAWN_MS = 2500
"""These pages draw after they are loaded, and say nothing when they have."""


def act(page: Page, name: str, *given: str) -> None:
    """One thing that a user does, or waits for."""
    match name:
        case "wait":
            page.wait_for_selector(*given)
        case "click":
            page.click(*given)
            page.wait_for_timeout(DRAWN_MS)
        case "fill":
            page.fill(*given)
        case _:
            raise ValueError(name)


def main() -> None:
    """Answer the request."""
    request = json.load(sys.stdin)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=request["chromium"], args=["--no-sandbox"])
        for shot in request["shots"]:
            width, height = shot["size"]
            page = browser.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(DEADLINE_MS)
            page.goto(shot["url"])
            for each in shot["acts"]:
                act(page, *each)
            page.wait_for_timeout(DRAWN_MS)
            page.screenshot(path=shot["file"])
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
