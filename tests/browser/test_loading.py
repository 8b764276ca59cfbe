"""Data loaded into the playground by drag and drop."""

from __future__ import annotations

import base64
import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

SAMPLES = Path(__file__).parents[2] / "examples" / "documents"
DROP = """([name, content]) => {
  const bytes = Uint8Array.from(atob(content), (each) => each.charCodeAt(0));
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([bytes], name));
  for (const kind of ["dragover", "drop"]) {
    document.body.dispatchEvent(new DragEvent(kind, { dataTransfer, bubbles: true, cancelable: true }));
  }
}"""
MEMORY = "The quokka of the harbour office eats figs at noon."
ARTICLE = {
    "id": "quokka",
    "title": "A quokka in the port",
    "text": "A quokka was seen in the port.",
    "source": "a.example",
}
BLOCKS = {
    "blocks": [{"id": "zoo", "type": "page", "text": "Zoo", "children": [{"id": "zoo-1", "text": "Feed the quokka."}]}]
}
LOADS = {
    "turn": ("notes.txt", MEMORY, "user_message", "What does the quokka eat?", "figs at noon"),
    "command": ("news.jsonl", json.dumps(ARTICLE), "raw_command", "/ask quokka window=24h", "was seen in the port"),
    "research": (
        "quokka.md",
        "# Quokka\n\nThe quokka weighs four kilograms.",
        "query",
        "quokka weight",
        "four kilograms",
    ),
    "workspace": ("zoo.json", json.dumps(BLOCKS), "query", "quokka", "Feed the quokka."),
}


def drop(page, name, content):
    """Drop one file on the page."""
    page.evaluate(DROP, [name, base64.b64encode(content).decode()])


@pytest.mark.parametrize("tab", LOADS)
def test_a_file_dropped_on_a_tab_becomes_what_the_tab_builds_from(open_page, tab):
    """Dropped, reported and found: memories, articles, documents and blocks, each by its own route."""
    name, content, field, asked, found = LOADS[tab]
    page = open_page(tab)
    drop(page, name, content.encode())
    page.wait_for_selector(".loads li[data-state=done]")
    told = page.inner_text(".loads li")
    page.keyboard.press("Escape")
    page.fill(f"#{tab}-{field}", asked)
    expect(page.locator(f"#panel-{tab} .prompt")).to_contain_text(found)

    assert name in told
    assert "added" in told


def test_a_pdf_shows_how_far_it_is_and_a_bad_file_why_it_failed(open_page):
    """A stored document is reported as unchanged; unreadable files, and lines that are not JSON, with the reason."""
    page = open_page("research")
    drop(page, "tidal-pilot.pdf", (SAMPLES / "tidal-pilot.pdf").read_bytes())
    page.wait_for_selector(".loads li[data-state=done]")
    known = page.inner_text(".loads li")
    drop(page, "broken.pdf", b"this is no PDF")
    page.wait_for_selector(".loads li[data-state=some]")
    page.select_option("#load-kind", "memories")
    drop(page, "broken.jsonl", b'{"text": "fine"}\nnot json')
    page.wait_for_selector(".loads li[data-state=failed]")

    assert "1 unchanged" in known
    assert page.locator(".loads li[data-state=some] .bad").inner_text()
    assert "Line 2" in page.locator(".loads li[data-state=failed] .bad").inner_text()
