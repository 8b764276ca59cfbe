"""What the playground shows of a build, and how it is changed."""

from __future__ import annotations

import json
import re
import shlex

import pytest
from playwright.sync_api import expect

from contexture.engine import replay
from support.playground import shown_limit, slide

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.slow]

SECTIONS = {
    "ask": {"system", "pages", "news", "workspace", "user"},
    "turn": {"system", "history", "memory", "user"},
    "command": {"system", "documents", "user"},
    "research": {"system", "pages", "user"},
    "workspace": {"system", "focus", "semantic", "relations", "activity", "user"},
}


def limit(page, tab="turn"):
    """The limit that the summary of a tab shows."""
    return int(page.inner_text(f"#panel-{tab} .stat[data-kind=tokens] dd").split("/")[1].replace(",", ""))


@pytest.mark.parametrize("tab", SECTIONS)
def test_each_kind_is_built_from_its_sample_and_shown_in_its_sections(open_page, tab):
    """A newcomer sees a prompt by sections, what they cost, why each candidate is there, and the time it took."""
    page = open_page(tab)
    panel = page.locator(f"#panel-{tab}")
    spent, most = (int(each.replace(",", "")) for each in panel.locator(".stats dd").first.inner_text().split("/"))

    shown = panel.locator(".part").evaluate_all("parts => parts.map(part => part.dataset.section)")
    assert SECTIONS[tab] == set(shown)
    assert 0 < spent <= most
    assert panel.locator(".budget .slice").count() >= 1
    assert panel.locator(".ledger tbody tr").count() > 4
    assert panel.locator(".signal").count() > 4
    assert panel.locator("section[aria-label='Time by phase'] .legend li").count() > 1


def test_the_slider_builds_again_and_never_beyond_its_budget(open_page):
    """A smaller budget gives a shorter prompt within it; memories leave it, and the ledger counts them."""
    page = open_page("turn")
    before = page.locator("#panel-turn .stat[data-kind=dropped] dd").inner_text()
    slide(page, 150)
    shown_limit(page, 150)

    spent = int(page.locator("#panel-turn .stats dd").first.inner_text().split("/")[0])
    assert spent <= 150
    assert int(page.locator("#panel-turn .stat[data-kind=dropped] dd").inner_text()) > int(before)


def test_an_answer_that_comes_late_is_not_shown(open_page):
    """Of two builds under way only the later one is shown, whichever is answered first."""
    page = open_page("turn")
    held, turns = [], re.compile("/v1/context/turn")
    page.route(turns, lambda route: held.append(route) if not held else route.continue_())
    with page.expect_request(turns):
        slide(page, 200)
    slide(page, 300)
    shown_limit(page, 300)
    held[0].fulfill(status=200, content_type="application/json", body="{}")
    page.evaluate("fetch('/health').then((answer) => answer.status)")  # whatever was on its way has arrived

    assert 300 == limit(page)


def test_why_not_says_what_would_have_let_a_candidate_in_and_does_it(open_page):
    """The advice is a number of tokens; taken, exactly that candidate is in the prompt."""
    page = open_page("workspace")
    panel = page.locator("#panel-workspace")
    before = limit(page, "workspace")
    row = panel.locator("tr:has(td:text-is('over budget'))").first
    panel.get_by_role("button", name="dropped").click()
    wanted = row.locator("code").inner_text()
    row.get_by_role("button", name="Why").click()
    page.get_by_role("button", name="Add ").click()
    expect(panel.locator(".stats dd").first).not_to_have_text(re.compile(f"/ {before}$"))

    panel.get_by_role("button", name="all").click()
    for more in panel.get_by_role("button", name="Show").all():
        more.click()
    state = panel.locator(f"tr:has(code:text-is('{wanted}')) .state").inner_text()
    assert before < limit(page, "workspace")
    assert state in {"kept", "shortened"}


def test_redactions_are_marked_and_counted(open_page):
    """Addresses and numbers stand in the prompt as marked placeholders, and nowhere as themselves."""
    page = open_page("turn")
    marks = page.locator("#panel-turn mark.redacted").all_inner_texts()

    assert any(mark.startswith("<EMAIL_") for mark in marks)
    assert len(set(marks)) == int(page.locator("#panel-turn .stat[data-kind=redacted] dd").inner_text())
    assert "h.lindt@" not in page.locator("#panel-turn .output").inner_text()


def test_a_citation_opens_its_page_with_the_passage_framed(open_page):
    """The picture of the page is drawn, and every box lies on it."""
    page = open_page("research")
    page.locator("#panel-research .cite").first.click()
    page.wait_for_selector("dialog .frame")
    image = page.locator("dialog .sheet img")
    expect(image).to_have_js_property("complete", value=True)
    sheet, boxes = image.bounding_box(), [each.bounding_box() for each in page.locator("dialog .frame").all()]

    assert image.evaluate("node => node.naturalWidth") > 100
    assert boxes
    for box in boxes:
        assert sheet["x"] - 1 <= box["x"] <= box["x"] + box["width"] <= sheet["x"] + sheet["width"] + 1
        assert sheet["y"] - 1 <= box["y"] <= box["y"] + box["height"] <= sheet["y"] + sheet["height"] + 1


def test_tables_of_sources_are_shown_as_tables(open_page):
    """The prompt has no row of Markdown in its text; figures are aligned to the right."""
    page = open_page("research")
    page.fill("#research-query", "What was the revenue of Drossel by harbour in 2024 and 2025?")
    table = page.locator("#panel-research .piece table:has(td:text-is('Drossel'))").first
    row = table.locator("tr:has(td:text-is('Drossel'))")

    expect(row.locator("td.figure").first).to_be_visible()
    assert all("| ---" not in text for text in page.locator("#panel-research .piece pre").all_inner_texts())


def test_a_graph_command_draws_its_graph(open_page):
    """Names are drawn with their ties, and listed for those who do not see the drawing."""
    page = open_page("command")
    page.get_by_role("button", name="/graph").click()
    page.wait_for_selector("svg.graph")

    assert "Tobias Quill" in page.locator("svg.graph .graph-node text").all_text_contents()
    assert page.locator("svg.graph .graph-edge line").count() >= 3
    assert page.locator(".relations li").count() >= 3


def test_another_user_is_shown_what_they_may_see(open_page):
    """What finance has noted stands in boris's prompt and not in demo's."""
    page = open_page("turn")
    page.get_by_role("button", name="What will it cost?").click()
    expect(page.locator("#panel-turn .prompt")).to_contain_text("new power supplies")
    mine = page.locator("#panel-turn .prompt").inner_text()
    page.select_option("#choose-user", "boris")
    expect(page.locator("#panel-turn .prompt")).to_contain_text("18,400 euros")

    assert "18,400" not in mine


def test_a_build_can_be_taken_along(open_page):
    """JSON and curl are copied as they should be, and the capsule that is downloaded replays."""
    page = open_page("turn", permissions=["clipboard-read", "clipboard-write"])
    copied = {}
    for name in ("JSON", "curl"):
        page.get_by_role("button", name=f"Copy {name}").click()
        page.wait_for_selector(".toast.shown")
        copied[name] = page.evaluate("navigator.clipboard.readText()")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download capsule").click()
    answer = json.loads(copied["JSON"])
    words = shlex.split(copied["curl"].replace("\\\n", " "), comments=True)

    assert 260 == answer["max_prompt_tokens"]
    assert 260 == json.loads(words[words.index("-d") + 1])["max_prompt_tokens"]
    assert answer["digest"] == replay(download.value.path().read_bytes())[0].digest


def test_a_broken_memory_service_shows_as_a_degradation(open_page):
    """Broken, the prompt is still built, without memories, and says why; the header says it too."""
    page = open_page("turn")
    page.get_by_role("switch").click()
    page.wait_for_selector("#panel-turn .notice.warning")
    try:
        assert "memory" in page.locator("#panel-turn .notice.warning").inner_text()
        assert 0 == page.locator("#panel-turn .part[data-section=memory]").count()
        assert "true" == page.get_by_role("switch").get_attribute("aria-checked")
        page.wait_for_selector(".pill[data-state=degraded]")
    finally:
        page.get_by_role("switch").click()
        page.wait_for_selector(".switch[aria-checked=false]")


def test_a_request_that_is_refused_is_told_in_the_services_words(open_page):
    """An empty message gives an error card with its reason, and the next good one a prompt again."""
    page = open_page("turn")
    page.fill("#turn-user_message", "")
    page.wait_for_selector("#panel-turn .failure")
    told = page.locator("#panel-turn .failure").inner_text()
    page.fill("#turn-user_message", "hello")
    page.wait_for_selector("#panel-turn .stats")

    assert "user_message" in told
    assert all("422" in each for each in open_page.problems)
    open_page.problems.clear()


def test_a_service_that_is_gone_is_named_and_asked_again(open_page):
    """Without an answer there is an error card; its button builds as soon as there is one."""
    page = open_page("turn")
    page.route("**/*", lambda route: route.abort())
    page.get_by_role("button", name="Build").first.click()
    expect(page.locator("#panel-turn .failure")).to_contain_text("No answer")
    expect(page.locator(".pill")).to_have_attribute("data-state", "down")
    page.unroute_all()
    page.get_by_role("button", name="Try again").click()
    page.wait_for_selector("#panel-turn .stats")
    expect(page.locator(".pill")).to_have_attribute("data-state", re.compile("normal|degraded"))

    assert all("ERR_FAILED" in each for each in open_page.problems)
    open_page.problems.clear()


def test_where_a_key_is_wanted_the_page_asks_for_it_and_forgets_it_with_the_tab(open_page):
    """A refused page shows a dialog; the key goes into the header of what follows, and into no lasting store."""
    page = open_page("turn")
    seen = []

    def gate(route):
        given = route.request.headers.get("authorization", "")
        seen.append(given)
        if not given:
            route.fulfill(status=401, content_type="application/json", body='{"error": {"code": "UNAUTHORIZED"}}')
            return
        route.continue_(headers={k: v for k, v in route.request.headers.items() if k != "authorization"})

    page.route("**/v1/**", gate)
    page.get_by_role("button", name="Build").first.click()
    page.fill("#key", "ctx_secret")
    page.keyboard.press("Enter")
    page.wait_for_selector("#panel-turn .stats")

    assert "Bearer ctx_secret" == seen[-1]
    assert "ctx_secret" == page.evaluate("sessionStorage.getItem('contexture.key')")
    assert "ctx_secret" not in page.evaluate("JSON.stringify(localStorage)")
    assert all("401" in each for each in open_page.problems)
    open_page.problems.clear()
