"""Makes the pictures of the playground in docs/images: `python scripts/screenshot.py`, with Chromium installed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, sync_playwright

IMAGES = Path(__file__).parents[1] / "docs" / "images"
PICTURES = (("turn", "light", "playground.png"), ("workspace", "dark", "playground-dark.png"))
SIZE = {"width": 1440, "height": 1040}
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]


def main() -> None:
    """Take every picture of a demonstration that was loaded for it."""
    found = shutil.which("chromium")
    if found is None:
        sys.exit("no Chromium was found: apt-get install chromium")
    IMAGES.mkdir(exist_ok=True)
    with TemporaryDirectory() as home, served(home) as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        for tab, scheme, name in PICTURES:
            take(browser, f"{url}/#{tab}", scheme, IMAGES / name)
        browser.close()


def take(browser: Browser, address: str, scheme: str, path: Path) -> None:
    """One picture, once the build is shown; the second build is the one whose times are those of a warm service."""
    page = browser.new_page(viewport=SIZE, color_scheme="dark" if scheme == "dark" else "light", locale="en-GB")
    page.goto(address)
    for _ in range(2):
        page.wait_for_selector(".panel:not([hidden])[aria-busy=false] .stats")
        page.locator(".panel:not([hidden]) .request .primary").click()
    page.wait_for_selector(".panel:not([hidden])[aria-busy=false] .stats")
    page.evaluate("document.activeElement.blur()")
    page.screenshot(path=path, animations="disabled")
    page.close()


@contextmanager
def served(home: str) -> Iterator[str]:
    """The address of a demonstration in a process of its own."""
    start = [sys.executable, "-c", "from contexture.cli.main import app; app()"]
    words = ["serve", "--home", home, "--demo", "--port", "0", "--json"]
    with subprocess.Popen([*start, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603 - our own command
        try:
            yield json.loads(process.stdout.readline() if process.stdout else "")["url"]
        finally:
            process.terminate()


if __name__ == "__main__":
    main()
