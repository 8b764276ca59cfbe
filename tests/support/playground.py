"""Steps on the page of the playground that several browser tests share."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect


def shown_limit(page: Page, tokens: int) -> None:
    """Wait until a build of the turn tab with this budget is shown."""
    expect(page.locator("#panel-turn .stats dd").first).to_have_text(re.compile(f"/ {tokens}$"))


def slide(page: Page, tokens: int, tab: str = "turn") -> None:
    """Move the slider as a hand does: one change of its value."""
    page.eval_on_selector(
        f"#{tab}-budget",
        "(node, value) => { node.value = value; node.dispatchEvent(new Event('input', {bubbles: true})) }",
        str(tokens),
    )
