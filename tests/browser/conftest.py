"""A real demonstration, served by a process of its own, in a real headless Chromium; skipped where there is none."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync"
).split()
PATIENCE = 60_000  # milliseconds: a busy machine is not a failure

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One browser for the tests of a file; while it is open, no other test could run an event loop."""
    found = shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def demo(demo_home: Callable[[], Path]) -> Iterator[str]:
    """The address of `contexture serve --demo`."""
    with _serve(demo_home()) as url:
        yield url


@pytest.fixture
def serve_demo() -> Iterator[Callable[[Path], str]]:
    """Serves another demonstration until the end of the test; returns its address."""
    with ExitStack() as stack:
        yield lambda home: stack.enter_context(_serve(home))


@contextmanager
def _serve(home: Path) -> Iterator[str]:
    log = home / "log"
    words = ("serve", "--home", str(home), "--demo", "--port", "0", "--json")
    with (
        log.open("w") as told,
        subprocess.Popen(
            [sys.executable, "-c", "from contexture.cli.main import app; app()", *words],
            stdout=subprocess.PIPE,
            stderr=told,
            text=True,
        ) as process,
    ):
        line = process.stdout.readline() if process.stdout else ""
        try:
            assert line, log.read_text()
            yield json.loads(line)["url"]
        finally:
            process.terminate()


@pytest.fixture
def open_page(chromium: Browser, demo: str) -> Iterator[Callable[..., Page]]:
    """Opens the page at a tab; afterwards nothing was complained about, and nobody but the service was asked."""
    problems: list[str] = []
    contexts: list[BrowserContext] = []

    def opened(tab: str = "turn", *, ready: bool = True, address: str = "", **options) -> Page:
        chosen = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", "base_url": demo, **options}
        context = chromium.new_context(**chosen)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(PATIENCE)
        page.on("console", lambda told: problems.append(told.text) if told.type in {"error", "warning"} else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("request", lambda asked: _check_address(asked.url, chosen["base_url"], problems))
        page.goto(address or f"/#{tab}")
        if ready:
            page.wait_for_selector(f"#panel-{tab} .stats")
        opened.problems = problems
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [] == problems


def _check_address(url: str, demo: str, problems: list[str]) -> None:
    found = urlsplit(url)
    if found.scheme in {"blob", "data"} or url.startswith(demo):
        return
    problems.append(f"the page asked {url}")
