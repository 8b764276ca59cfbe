"""The playground for everyone: keyboard, dark and light, narrow screens, two languages, hostile data."""

from __future__ import annotations

import re
from pathlib import Path

import axe_playwright_python
import httpx
import pytest
from playwright.sync_api import expect

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
EVIL = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>{{7*7}}'
TINT = 0.13  # of the section's own colour, the most that labels stand on
TABS = ("ask", "turn", "command", "research", "workspace")


def test_tabs_are_moved_through_with_arrows(open_page):
    """One tab stop for all; arrows, Home and End choose, and the panel follows."""
    page = open_page("turn")
    page.focus("#tab-turn")
    visited = []
    for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "ArrowRight", "Home"):
        page.keyboard.press(key)
        visited.append(page.evaluate("document.activeElement.id"))

    assert ["command", "research", "command", "workspace", "ask", "ask"] == [each[4:] for each in visited]
    assert 1 == page.locator("[role=tab][tabindex='0']").count()
    assert page.locator("#panel-ask").is_visible()
    assert page.locator("#panel-command").is_hidden()


def test_the_ledger_is_sorted_by_enter(open_page):
    """Enter on a column sorts by it, a second one turns it round, and the column says so."""
    page = open_page("command")
    head = page.locator("#panel-command th.column-score")
    numbers = "cells => cells.map(cell => Number(cell.textContent))"
    sorts = []
    for _ in range(2):
        head.locator("button").focus()
        page.keyboard.press("Enter")
        found = page.locator("#panel-command tbody td.number:nth-child(6)").evaluate_all(numbers)
        sorts.append((head.get_attribute("aria-sort"), found))

    assert [("ascending", sorted(sorts[0][1], reverse=True)), ("descending", sorted(sorts[0][1]))] == sorts
    assert len(set(sorts[0][1])) > 3


def test_everything_can_be_reached_named_and_left_by_keyboard(open_page):
    """The first stop skips to the request, every control has a name, and Escape gives the focus back."""
    page = open_page("turn")
    page.keyboard.press("Tab")
    assert "Skip to the request" == page.evaluate("document.activeElement.textContent")
    page.keyboard.press("Enter")
    assert "panels" == page.evaluate("document.activeElement.id")
    named = """nodes => nodes.filter(node => node.offsetParent && !(node.ariaLabel || node.textContent.trim()
        || node.labels?.length)).map(node => node.outerHTML)"""
    assert [] == page.locator("button, input, select, textarea, [role=switch]").evaluate_all(named)

    page.locator("#panel-turn .why").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open] .advice")
    page.keyboard.press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    assert "why" == page.evaluate("document.activeElement.className")


def test_the_slider_is_moved_by_arrow_keys(open_page):
    """One press is one step, and the prompt is built with it."""
    page = open_page("turn")
    page.focus("#turn-budget")
    page.keyboard.press("ArrowLeft")
    expect(page.locator("#panel-turn .stats dd").first).to_have_text(re.compile("/ 250$"))

    assert "250 tokens" == page.get_attribute("#turn-budget", "aria-valuetext")


def test_dark_and_light_follow_the_system_until_somebody_chooses(open_page):
    """A dark system gives a dark page; the switch wins over it and is remembered."""
    page = open_page("turn", color_scheme="dark")
    back = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(back)
    page.select_option("#choose-theme", "light")
    light = page.evaluate(back)
    page.reload()
    page.wait_for_selector("#panel-turn .stats")

    assert "rgb(15, 17, 26)" == dark
    assert "rgb(246, 247, 251)" == light == page.evaluate(back)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(open_page, scheme):
    """Every colour of text has a contrast of 4.5 to 1 with the card, and with a card tinted in that colour."""
    page = open_page("turn", color_scheme=scheme)
    names = ["ink", "soft", "good", "warn", "bad", "system", "history", "memory", "user", "documents", "pages", "focus"]
    read = """names => { const probe = document.body.appendChild(document.createElement("i"));
        const seen = names.map(name => { probe.style.color = `var(--${name})`; return getComputedStyle(probe).color });
        probe.remove(); return seen }"""
    card, *colours = [
        [int(each) for each in re.findall(r"\d+", found)] for found in page.evaluate(read, ["card", *names])
    ]

    low = {}
    for name, colour in zip(names, colours, strict=True):
        tinted = [TINT * own + (1 - TINT) * behind for own, behind in zip(colour, card, strict=True)]
        low[name] = min(contrast(colour, card), contrast(colour, tinted))
    assert [] == [name for name, found in low.items() if found < 4.5]


@pytest.mark.parametrize("width", [390, 768, 1440])
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("lang", ["en-GB", "ru-RU"])
def test_axe_finds_no_violation_on_any_tab(open_page, lang, scheme, width):
    """All rules of axe-core, with the answer of a model shown, and with a dialog open."""
    page = open_page("ask", viewport={"width": width, "height": 900}, color_scheme=scheme, locale=lang)
    found = {}
    for tab in TABS:
        page.click(f"#tab-{tab}")
        page.wait_for_selector(f"#panel-{tab}[aria-busy=false] .stats")
        found[tab] = violations(page)
    page.locator("#panel-workspace .run").click()
    page.wait_for_selector("#panel-workspace .answer-text")
    page.locator("#panel-workspace .why").first.click()
    page.wait_for_selector("dialog .advice")
    found["explanation"] = violations(page)
    page.keyboard.press("Escape")
    page.locator(".builds .compare").first.click()
    page.wait_for_selector("dialog .compared")
    found["comparison"] = violations(page)

    assert {name: [] for name in found} == found


def violations(page):
    """What axe-core finds on the page as it is: the rule and the element."""
    page.evaluate("Promise.allSettled(document.getAnimations().map((each) => each.finished)).then(() => null)")
    page.evaluate(AXE)
    found = page.evaluate("axe.run()")["violations"]
    return [f"{each['id']}: {node['target']}" for each in found for node in each["nodes"]]


@pytest.mark.parametrize("lang", ["en-GB", "ru-RU"])
def test_a_narrow_screen_is_never_scrolled_sideways(open_page, lang):
    """At the width of a phone every tab fits; only tables scroll inside their cards."""
    page = open_page("turn", viewport={"width": 360, "height": 740}, locale=lang)
    for tab in TABS:
        page.click(f"#tab-{tab}")
        page.wait_for_selector(f"#panel-{tab} .stats")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab


def test_the_page_speaks_russian_and_changes_its_mind(open_page):
    """A Russian browser is greeted in Russian, results included; the choice of English holds from then on."""
    page = open_page("turn", locale="ru-RU")
    assert "ru" == page.get_attribute("html", "lang")
    assert "Собрать" == page.inner_text("#panel-turn .primary")
    assert "Журнал отбора" in page.inner_text("#panel-turn .output")
    page.select_option("#choose-language", "en")
    assert "Build" == page.inner_text("#panel-turn .primary")
    assert "Ledger" in page.inner_text("#panel-turn .output")
    page.reload()
    page.wait_for_selector("#panel-turn .stats")
    assert "en" == page.get_attribute("html", "lang")


def test_hostile_text_is_shown_and_never_run(open_page, demo):
    """Markup in memories, articles, blocks, pages, ids, file names, requests and errors stays text."""
    with httpx.Client(base_url=demo, headers={"X-Contexture-User": "demo"}, timeout=60) as client:
        loaded = [
            client.post(
                "/v1/ingest/memories", json={"memories": [{"id": EVIL, "text": f"zebra {EVIL}", "type": EVIL}]}
            ),
            client.post(
                "/v1/ingest/articles",
                json={"articles": [{"id": EVIL, "title": f"zebra {EVIL}", "text": f"zebra crossing {EVIL}"}]},
            ),
            client.post(
                "/v1/ingest/blocks",
                json={"blocks": [{"id": "evil", "type": "page", "text": f"zebra {EVIL}"}]},
            ),
            client.post(
                "/v1/ingest/documents",
                json={
                    "files": [{"filename": f"{EVIL.replace('/', '')}.md", "content": "IyB6ZWJyYSA8aW1nIHNyYz14Pg=="}]
                },
            ),
        ]
        assert [200] * 4 == [answer.status_code for answer in loaded]
    page = open_page("turn")
    for tab, field, text in (
        ("ask", "query", f"zebra {EVIL}"),
        ("turn", "user_message", f"zebra {EVIL}"),
        ("command", "raw_command", "/ask zebra crossing window=1w"),
        ("research", "query", f"zebra {EVIL}"),
        ("workspace", "query", "zebra"),
    ):
        page.click(f"#tab-{tab}")
        page.wait_for_selector(f"#panel-{tab} .stats")
        page.fill(f"#{tab}-{field}", text)
        expect(page.locator(f"#panel-{tab} .prompt")).to_contain_text("<img")
        page.locator(f"#panel-{tab} .why").first.click()
        page.wait_for_selector("dialog .advice")
        page.keyboard.press("Escape")
    page.click("#tab-command")
    page.fill("#command-raw_command", EVIL)
    page.wait_for_selector("#panel-command .failure")

    assert page.evaluate("window.hacked === undefined")
    assert 0 == page.locator("#panels img[src=x], #panels script").count()
    assert all("422" in each for each in open_page.problems)
    open_page.problems.clear()


def contrast(one, other):
    """The contrast of two colours, as accessibility guidelines reckon it."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour):
    parts = [each / 255 for each in colour]
    red, green, blue = (part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
