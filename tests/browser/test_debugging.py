"""The playground as a debugger: links, history, comparisons, answers, copies, prompt caching, and nothing written."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import expect

from support.playground import shown_limit, slide

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

TABS = ("ask", "turn", "command", "research", "workspace")


def build_id(page, tab):
    """The id of the build that a tab shows."""
    return page.locator(f"#panel-{tab} .export code").inner_text()


def wait_for_other_build(page, tab, before):
    """Wait until a tab shows another build than this one."""
    expect(page.locator(f"#panel-{tab} .export code")).not_to_have_text(before)


@pytest.mark.parametrize("tab", TABS)
def test_a_link_opens_the_same_build_in_another_browser(open_page, tab):
    """The address names the build and its request; somebody else sees the same id, and the request in the form."""
    page = open_page(tab)
    tokens = {"command": 3_072, "research": 700}.get(tab, 600)
    slide(page, tokens, tab)
    expect(page.locator(f"#panel-{tab} .stats dd").first).to_have_text(re.compile(f"/ {tokens:,}$"))
    name = build_id(page, tab)
    asked = page.locator(f"#panel-{tab} textarea").first.input_value()
    expect(page).to_have_url(re.compile(f"#{tab}/{name}"))

    other = open_page(address=page.url, tab=tab)

    assert name == build_id(other, tab)
    assert asked == other.locator(f"#panel-{tab} textarea").first.input_value()
    assert 0 == other.locator(f"#panel-{tab} .notice:has-text('This link')").count()


def test_a_link_to_a_build_that_cannot_be_made_again_says_so(open_page):
    """The clock of the link is another one, so the build has another id."""
    page = open_page("turn")
    address = page.url.replace(build_id(page, "turn"), "ctx-000000000000")

    other = open_page(address=address, tab="turn")

    expect(other.locator("#panel-turn .notice.warning")).to_contain_text("made for the build ctx-000000000000")


def test_the_history_opens_a_build_again_with_its_user(open_page):
    """Every build is listed with what was asked; choosing one brings back its user, its budget and its id."""
    page = open_page("turn")
    first = build_id(page, "turn")
    page.select_option("#choose-user", "boris")
    wait_for_other_build(page, "turn", first)
    second = build_id(page, "turn")
    slide(page, 180)
    shown_limit(page, 180)
    rows = page.locator(".builds li")

    assert 3 == rows.count()
    assert "How do I reset it" in rows.nth(2).inner_text()
    assert ["of 180 tokens · boris", "of 260 tokens · boris", "of 260 tokens · demo"] == [
        re.search(r"of \d+ tokens · \w+", text)[0] for text in rows.all_inner_texts()
    ]
    rows.nth(2).locator("a").click()
    expect(page.locator("#panel-turn .export code")).to_have_text(first)
    assert "demo" == page.input_value("#choose-user")
    page.locator(".builds li:has-text('260 tokens · boris') a").click()
    expect(page.locator("#panel-turn .export code")).to_have_text(second)


def test_two_builds_are_compared_by_budget(open_page):
    """What left is named with the reason, and the budget is marked as changed."""
    page = open_page("turn")
    slide(page, 150)
    shown_limit(page, 150)
    page.locator(".builds li").nth(1).get_by_role("button", name="Compare").click()
    dialog = page.locator("dialog")
    left = dialog.locator("[data-list=left] li")

    expect(left.first).to_be_visible()
    assert "over budget" in dialog.locator("[data-list=left]").inner_text()
    assert ["260", "150"] == dialog.locator("tr:has(th:text-is('Token budget')) td").all_inner_texts()
    assert "request.max_prompt_tokens" in dialog.inner_text()


def test_two_builds_are_compared_by_user(open_page):
    """What only one user may read came in, and the other's build says that it was no candidate."""
    page = open_page("turn")
    page.get_by_role("button", name="What will it cost?").click()
    expect(page.locator("#panel-turn .prompt")).to_contain_text("new power supplies")
    before = build_id(page, "turn")
    page.select_option("#choose-user", "boris")
    wait_for_other_build(page, "turn", before)
    page.locator(".builds li").nth(1).get_by_role("button", name="Compare").click()
    came = page.locator("dialog [data-list=came]")

    expect(came).to_contain_text("18,400 euros")
    assert "may not read it" in came.inner_text()
    assert ["demo", "boris"] == page.locator("dialog tr:has(th:text-is('User')) td").all_inner_texts()


@pytest.mark.parametrize("tab", TABS)
def test_run_sends_the_prompt_to_the_model_and_opens_what_is_cited(open_page, tab):
    """Without a model the answer quotes the prompt, which the page says; a marker opens its source."""
    page = open_page(tab)
    page.locator(f"#panel-{tab} .run").click()
    answer = page.locator(f"#panel-{tab} .answer-text")
    expect(answer).to_be_visible()

    assert len(answer.inner_text()) > 10
    assert "contexture doctor" in page.locator(f"#panel-{tab} .answer").inner_text()
    if tab in {"ask", "turn", "research"}:
        answer.locator(".cite").first.click()
        expect(page.locator("dialog .cites")).to_be_visible()


@pytest.mark.parametrize("tab", TABS)
def test_what_is_copied_gives_exactly_this_build_again(open_page, tab):
    """Python, curl and TypeScript are run as they are copied: each gives the id of the build on the screen."""
    page = open_page(tab, permissions=["clipboard-read", "clipboard-write"])
    name = build_id(page, tab)
    copied = {}
    for language in ("curl", "Python", "TypeScript"):
        page.locator(f"#panel-{tab}").get_by_role("button", name=f"Copy {language}").click()
        page.wait_for_selector(".toast.shown")
        copied[language] = page.evaluate("navigator.clipboard.readText()")

    python = subprocess.run(
        [sys.executable, "-c", copied["Python"]], capture_output=True, text=True, timeout=60, check=True
    )
    assert name == python.stdout.strip()
    if shutil.which("curl"):
        shell = subprocess.run(
            ["/bin/sh", "-c", copied["curl"]], capture_output=True, text=True, timeout=60, check=True
        )
        assert name in shell.stdout
    console = "let said; const console = { log: (text) => (said = text) };"
    assert name == page.evaluate(f"async () => {{ {console}\n{copied['TypeScript']}\nreturn said }}")


def test_looking_at_prompts_writes_nothing(demo_home: Callable[[], Path], open_page, serve_demo):
    """On a fresh store a build and its repetition are identical, although the turn trims its history."""
    url = serve_demo(demo_home())
    page = open_page("turn", base_url=url)
    history = "\n".join(
        f"{('user', 'assistant')[at % 2]}: We spoke about gauge {at} at length, and it was fine." for at in range(30)
    )
    page.fill("#turn-history", history)
    expect(page.locator("#panel-turn .prompt")).not_to_contain_text("Then look at the outer quay first")
    first = json.loads(page.evaluate("sessionStorage.getItem('contexture.builds')"))[0]
    prompt = page.locator("#panel-turn .prompt").inner_text()
    with httpx.Client(base_url=url, headers={"X-Contexture-User": "demo"}, timeout=60) as client:
        memories = client.post("/memory/recall", json={"query": "gauge at length", "top_k": 50, "threshold": 0}).json()
    page.get_by_role("button", name="Build").first.click()
    page.locator("#panel-turn .run").click()
    expect(page.locator("#panel-turn .answer-text")).to_be_visible()
    with httpx.Client(base_url=url, headers={"X-Contexture-User": "demo"}, timeout=60) as client:
        after = client.post("/memory/recall", json={"query": "gauge at length", "top_k": 50, "threshold": 0}).json()
        sessions = client.get("/v1/sessions").json()
    again = json.loads(page.evaluate("sessionStorage.getItem('contexture.builds')"))[0]

    assert (first["tokens"], first["title"]) == (again["tokens"], again["title"])
    assert (
        prompt.replace("same as before", "").split()
        == page.locator("#panel-turn .prompt").inner_text().replace("same as before", "").split()
    )
    assert [each["id"] for each in memories["results"]] == [each["id"] for each in after["results"]]
    assert [] == sessions["sessions"]


def test_an_error_keeps_the_last_good_result(open_page):
    """The error is above the result before it, which is said to be old."""
    page = open_page("turn")
    before = page.locator("#panel-turn .prompt").inner_text()
    page.fill("#turn-user_message", "")
    page.wait_for_selector("#panel-turn .failure")

    assert before == page.locator("#panel-turn .prompt").inner_text()
    assert "last result" in page.locator("#panel-turn .stale").inner_text()
    open_page.problems.clear()


def test_the_shared_prefix_of_two_prompts_is_shown(open_page):
    """Another question leaves system prompt and history the same: these parts are marked."""
    page = open_page("turn")
    assert "Build again" in page.locator("#panel-turn .caching").inner_text()
    page.fill("#turn-user_message", "Whom do I tell about the gauge?")
    expect(page.locator("#panel-turn .caching")).to_contain_text("messages are the same as in the build before")

    assert page.locator("#panel-turn .part[data-section=system] .shared").count() == 1
    assert page.locator("#panel-turn .part[data-section=user] .shared").count() == 0
    assert "estimated" in page.locator("#panel-turn .caching").inner_text()


def test_rows_of_history_show_their_text_and_signals_their_names(open_page):
    """Nobody has to know what `history[0]` was, or what a bar means."""
    page = open_page("turn")
    row = page.locator("#panel-turn tr:has(code:text-is('history[0]'))")

    assert "I am on my way to Drossel" in row.locator(".candidate-title").inner_text()
    names = page.locator("#panel-turn .signal-name").all_inner_texts()
    assert {"words", "recency"} & set(names)
    assert [] == [name for name in names if "_" in name]


@pytest.mark.parametrize("tab", TABS)
def test_phases_fill_the_time_once(open_page, tab):
    """The bars of all phases are not longer than the whole."""
    page = open_page(tab)
    widths = page.locator(f"#panel-{tab} section[aria-label='Time by phase'] .slice").evaluate_all(
        "nodes => nodes.map(node => parseFloat(node.style.width))"
    )

    assert len(widths) > 1
    assert sum(widths) <= 100.5


def test_only_commands_that_exist_are_offered(open_page):
    """Each sample of the command tab is built, and the hint names the commands of the service."""
    page = open_page("command")
    for chip in page.locator("#panel-command form .chip").all():
        before = build_id(page, "command")
        if "true" != chip.get_attribute("aria-pressed"):
            chip.click()
            wait_for_other_build(page, "command", before)
        assert 0 == page.locator("#panel-command .failure").count(), chip.inner_text()

    assert "/trends" not in page.locator("#panel-command").inner_text()


def test_on_a_phone_the_result_comes_first_and_the_ledger_fits(open_page):
    """Above the form, with a link to it; a row of the ledger is a card, nothing of it scrolls sideways."""
    page = open_page("ask", viewport={"width": 390, "height": 800})
    tops = {name: page.locator(f"#panel-ask .{name}").bounding_box()["y"] for name in ("output", "request")}
    ledger = page.locator("#panel-ask .scroll:has(> .ledger)")

    assert tops["output"] < tops["request"]
    assert ledger.evaluate("node => node.scrollWidth <= node.clientWidth")
    page.locator("#panel-ask .jump").click()
    assert "ask-query" == page.evaluate("document.activeElement.id")


def test_a_follow_up_and_empty_kinds_are_explained(open_page):
    """The page says how a follow-up was read, and the command that fills a kind without a match."""
    page = open_page("ask")
    page.get_by_role("button", name="Follow-up").click()
    notes = page.locator("#panel-ask .notice")

    expect(notes).to_contain_text("Read as")
    assert "contexture ingest" in notes.inner_text() or "contexture chat" in notes.inner_text()
