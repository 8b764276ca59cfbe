"""The parts of the news: domains, fingerprints of copies, and HTML as text."""

from __future__ import annotations

import pytest

from contexture.ingestion._html_text import html_to_text
from contexture.news._fingerprint import is_copy, make_fingerprint, read_fingerprint
from contexture.news.articles import domain_with_parents, normalize_domain, safe_web_url
from support.news import STRIKE

RUSSIAN = (
    "В порту Нортки остановились все краны: на забастовку вышли около 1200 докеров. На рейде стоят одиннадцать судов. "
    "Переговоры сорвались незадолго до полуночи. Цены на фрахт выросли на 9 процентов, сообщила биржа в Роттердаме."
)


def alike(one, other):
    """Whether two texts are copies, either way round."""
    left, right = (read_fingerprint({"print": make_fingerprint(text)}) for text in (one, other))
    assert is_copy(left, right) == is_copy(right, left)
    return is_copy(left, right)


@pytest.mark.parametrize(
    ("given", "domain"),
    [
        ("https://www.Example.COM/path?x=1", "example.com"),
        ("WWW.bbc.co.uk", "bbc.co.uk"),
        ("news.example.org:8080/feed", "news.example.org"),
        ("//cdn.example.org/x", "cdn.example.org"),
        ("example.org.", "example.org"),
        ("https://user:secret@example.org/", "example.org"),
        ("Reuters", "reuters"),
        ("http://[broken", ""),
        ("", ""),
    ],
)
def test_a_source_has_one_spelling(given, domain):
    """Addresses, hosts and domains come down to the domain, in lower case and without `www.`."""
    assert domain == normalize_domain(given)


def test_a_domain_is_part_of_those_above_it():
    """All but the last name alone."""
    assert ("a.b.example", "b.example") == domain_with_parents("a.b.example")
    assert ("reuters",) == domain_with_parents("reuters")


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", " \x01JavaScript:x", "java\tscript:x", "data:text/html,x", "urn:x"]
)
def test_addresses_of_scripts_and_data_lead_nowhere(url):
    """Only pages of the web are addresses, however a scheme is hidden."""
    assert not safe_web_url(url)


@pytest.mark.parametrize(
    "url", ["https://a.example/x:y", "HTTP://a.example", "//a.example/x", "/x", "a.example:80/x", ""]
)
def test_addresses_of_pages_stay(url):
    """What leads to a page is kept as it stands."""
    assert url == safe_web_url(f" {url}\n")


@pytest.mark.parametrize(
    "other",
    [
        STRIKE,
        STRIKE.replace("About", "Some"),
        STRIKE.upper().lower().capitalize().replace("northquay", "Northquay").replace("monday", "Monday"),
        STRIKE + " A full report follows.",
        STRIKE.replace(", and grain exports have stopped", ""),
    ],
)
def test_light_edits_and_cuts_are_copies(other):
    """A word changed, a sentence added or an end cut off is still the same story."""
    assert alike(STRIKE, other)


@pytest.mark.parametrize(
    ("old", "new"),
    [("1,200", "900"), ("Northquay", "Vellmar"), ("have stopped", "have not stopped"), ("Monday", "Tuesday")],
)
def test_another_number_name_or_negation_is_another_story(old, new):
    """However alike the rest is, contradicting reports are never collapsed."""
    assert not alike(STRIKE, STRIKE.replace(old, new))


@pytest.mark.parametrize(("old", "new"), [("выросли", "упали"), ("1200", "900"), ("Роттердаме", "Гдыне")])
def test_another_direction_is_another_story_in_russian_too(old, new):
    """Rising and falling prices are two stories."""
    assert alike(RUSSIAN, RUSSIAN.replace("незадолго", "вскоре"))
    assert not alike(RUSSIAN, RUSSIAN.replace(old, new))


def test_a_retelling_is_not_a_copy():
    """The same event in other words keeps its own article."""
    retold = (
        "According to the harbour workers' union, some 1,200 dockers in Northquay are on strike since Monday. "
        "The walkout followed failed negotiations with the port authority. Grain is no longer exported."
    )

    assert not alike(STRIKE, retold)


def test_short_texts_are_never_copies():
    """A few words are alike by chance."""
    assert not alike("Strike in the port.", "Strike in the port.")


def test_a_fingerprint_that_is_missing_is_like_no_other():
    """Records written without one are shown as they are."""
    assert not is_copy(read_fingerprint({}), read_fingerprint({}))


def test_long_articles_are_compared_by_samples():
    """Articles with more runs and facts than are kept are still told apart, and still found alike."""
    long = " ".join(
        f"Pier {number} of Northquay lost {number * 7} crates to the waves overnight." for number in range(400)
    )

    assert alike(long, long.replace("overnight", "at night", 5))
    assert not alike(long, long.replace("Pier", "Quay").replace("crates", "barrels"))


@pytest.mark.parametrize(
    ("html", "text"),
    [
        ("no markup, 3 < 4", "no markup, 3 < 4"),
        ("<p>Fish &amp; chips</p><p>Tea&nbsp;time</p>", "Fish & chips\nTea time"),
        ("a<script>alert('x')</script>b<style>p{}</style>c", "abc"),
        ("one<br/>two<!-- three -->", "one\ntwo"),
        ("<ul><li>a<li>b</ul>", "a\nb"),
        ("&lt;b&gt;shown&lt;/b&gt;", "<b>shown</b>"),
        ("left <script>open", "left"),
        ("<p>unclosed <b>bold", "unclosed bold"),
        ("<p>profits <forecast", "profits <forecast"),
        ("<p>hello <![ there", "hello <![ there"),
        ("<p>a <!--> b <!-- c --> d <!-- e", "a b d"),
        ("<p title='a>b' data-it's>c</p >d </> e", "c\nd e"),
        ("a<svg/>b<svg>c<svg></svg>d<SCRIPT/>e</script >f", "abdf"),
        ("<p>no &#" + "9" * 5_000 + "; such &#65;", "no \ufffd such A"),
        ("<!DOCTYPE html><?x y?><title>t</title>text", "text"),
        ("<a" + " b=c" * 20_000 + ">text", "text"),
    ],
)
def test_html_becomes_what_a_reader_would_see(html, text):
    """Tags, scripts, styles and comments go, entities are decoded, blocks are lines."""
    assert text == html_to_text(html)


@pytest.mark.parametrize(
    "piece", ["<a ", "<a b='", "</", "<![", "<!--", "<?", "<svg></math>", '</a b=">" ', "<script></scrip"]
)
def test_markup_that_is_never_closed_is_read_once(piece):
    """A megabyte of openings is over in a moment: read once for each opening it would take an hour."""
    html_to_text("<p>" + piece * (1_000_000 // len(piece)))
