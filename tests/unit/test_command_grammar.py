"""What people type and what it means."""

from __future__ import annotations

import pytest

from contexture.builders.command._parser import MAX_COMMAND_CHARS, parse_command
from contexture.builders.command.syntax import (
    ALIASES,
    CLOSED_VALUES,
    EXAMPLES,
    ArgumentKey,
    Command,
    ParsedCommand,
    Window,
)
from contexture.errors import InvalidRequest

COMMANDS = [
    ("/ask", Command.ASK),
    ("/ask --depth=deep", Command.ASK),
    ("/ASK --Depth=DEEP", Command.ASK),
    ("/ask --depth deep", Command.ASK),
    ("/ask@news_bot", Command.ASK),
    ("/events", Command.EVENTS),
    ("/events link", Command.EVENTS),
    ("/Events LINK", Command.EVENTS),
    ("/graph", Command.GRAPH),
    ("/graph query", Command.GRAPH),
    ("/memory", Command.RECALL),
    ("/memory recall", Command.RECALL),
    ("/memory suggest", Command.SUGGEST),
    ("/Memory STORE", Command.STORE),
    ("/synthesize", Command.SYNTHESIZE),
    ("  /synthesize  ", Command.SYNTHESIZE),
]
ARGUMENTS = {
    # the specification's own examples
    "window=24h lang=en topic=AI sources=techcrunch.com k=8": {
        "window": Window.DAY,
        "lang": "en",
        "topic": "AI",
        "sources": ("techcrunch.com",),
        "k": 8,
    },
    'query="machine learning trends" window=1w': {"query": "machine learning trends", "window": Window.WEEK},
    "query=AI breakthroughs window=1w": {"query": "AI breakthroughs", "window": Window.WEEK},
    'topic="AI trends"': {"topic": "AI trends"},
    "topic:AI": {"topic": "AI"},
    'entity="OpenAI"': {"entity": "OpenAI"},
    "k_final=10": {"k": 10},
    "sources=domain1.com,domain2.com": {"sources": ("domain1.com", "domain2.com")},
    # forms of one value
    "lang=ru": {"lang": "ru"},
    "lang:EN": {"lang": "en"},
    "lang auto": {"lang": "auto"},
    "LANG = ru": {"lang": "ru"},
    "--lang=ru": {"lang": "ru"},
    "k 8": {"k": 8},
    "k:7": {"k": 7},
    "window 3d": {"window": Window.THREE_DAYS},
    "1d": {"window": Window.ONE_DAY},
    "24H": {"window": Window.DAY},
    "source: example.org": {"sources": ("example.org",)},
    "sources=a.com, b.com": {"sources": ("a.com", "b.com")},
    "sources=a.com ,b.com": {"sources": ("a.com", "b.com")},
    'sources="a.com, b.com"': {"sources": ("a.com", "b.com")},
    "sources=https://www.Example.org/feed,example.org": {"sources": ("example.org",)},
    "domains=a.com": {"domains": ("a.com",)},
    "hop=3": {"hops": 3},
    "hops 1": {"hops": 1},
    "build_policy=cached_only": {"policy": "cached_only"},
    # flags
    "rerank": {"rerank": True},
    "rerank=true": {"rerank": True},
    "rerank=FALSE": {"rerank": False},
    "rerank off": {"rerank": False},
    "no-rerank": {"rerank": False},
    "no_rerank": {"rerank": False},
    "--no-rerank": {"rerank": False},
    # clamps
    "k=100": {"k": 10},
    "k=-3": {"k": 5},
    "k=" + "9" * 200: {"k": 10},
    "hops=9": {"hops": 3},
    # values end at the next key, flag or bare window
    "topic=AI trends lang=ru": {"topic": "AI trends", "lang": "ru"},
    "topic=AI trends 24h": {"topic": "AI trends", "window": Window.DAY},
    "topic=AI trends no-rerank now": {"topic": "AI trends", "rerank": False, "text": "now"},
    "window=24h, lang=ru; what now": {"window": Window.DAY, "lang": "ru", "text": "what now"},
    'topic="AI" what is new': {"topic": "AI", "text": "what is new"},
    "query=batteries lang=en and cars": {"query": "batteries and cars", "lang": "en"},
    "topic=AI trends, lang=ru": {"topic": "AI trends", "lang": "ru"},
    "what is new; lang=ru": {"text": "what is new", "lang": "ru"},
    # quotes
    "topic='AI trends'": {"topic": "AI trends"},
    "topic=«AI trends»": {"topic": "AI trends"},
    "topic=«фирма «Рога» и Ко»": {"topic": "фирма «Рога» и Ко"},
    "topic=“AI trends”": {"topic": "AI trends"},
    "topic=„AI trends“": {"topic": "AI trends"},
    r'topic="an \"open\" model"': {"topic": 'an "open" model'},
    '"window=24h is text here"': {"text": "window=24h is text here"},
    'who said "never again"': {"text": 'who said "never again"'},
    "don't panic": {"text": "don't panic"},
    "'tis the season": {"text": "'tis the season"},
    # text that only looks like arguments
    "topic modelling": {"text": "topic modelling"},
    "source of the leak": {"text": "source of the leak"},
    "why k means": {"text": "why k means"},
    "x=5 and https://a.com/?b=c": {"text": "x=5 and https://a.com/?b=c"},
    "Tesla: what now": {"text": "Tesla: what now"},
    "window=1w what happened in 24h": {"window": Window.WEEK, "text": "what happened in 24h"},
    "24h or 1w": {"window": Window.DAY, "text": "or 1w"},
    # Russian
    "тема=«искусственный интеллект» окно=24ч": {"topic": "искусственный интеллект", "window": Window.DAY},
    "язык=русский источники=lenta.ru": {"lang": "ru", "sources": ("lenta.ru",)},
    "запрос: новости науки период: 1н": {"query": "новости науки", "window": Window.WEEK},
    "объект=«Сбер» lang=ru": {"entity": "Сбер", "lang": "ru"},
    "что нового за 24h": {"text": "что нового", "window": Window.DAY},
    "что нового за последние 24h?": {"text": "что нового", "window": Window.DAY},
    "что нового за последние 3д?": {"text": "что нового", "window": Window.THREE_DAYS},
    "глубина 3м": {"text": "глубина 3м"},
    "what happened in the last 1w?": {"text": "what happened", "window": Window.WEEK},
    "in the past 24h: what happened": {"text": "what happened", "window": Window.DAY},
    "what happened (1w)": {"text": "what happened", "window": Window.WEEK},
    "what happened? window=1w.": {"text": "what happened?", "window": Window.WEEK},
    "what came last, and why, 24h": {"text": "what came last, and why", "window": Window.DAY},
    "a = b and c == d": {"text": "a = b and c == d"},
    "": {},
    " \t\n": {},
}
REFUSED = [
    ("/aks", "", "'/aks' is not a command; did you mean /ask?"),
    ("/sinthesize", "", "did you mean /synthesize?"),
    ("ask", "", "did you mean /ask?"),
    ("/weather", "", "there are /ask, /events, /graph, /memory, /synthesize"),
    ("", "", "there is no command"),
    ("/memory stor", "pump", "did you mean /memory store?"),
    ("/ask", "lang=de", "'de' at character 11 is not a value of lang: give one of ru, en, auto, such as lang=ru"),
    ("/ask", "window=5h", "'5h' at character 13 is not a value of window"),
    ("/ask", "k=many", "give a whole number from 5 to 10, such as k=8"),
    ("/ask", "k=", "k at character 6 has no value; write k=8"),
    ("/ask", "lang= window=24h", "lang at character 6 has no value; write lang=ru"),
    ("/ask", 'topic="" lang=ru', "topic at character 6 has no value"),
    ("/ask", "sources=,", "sources at character 6 has no value"),
    ("/ask", 'topic="AI trends', "the quote at character 12 is not closed"),
    ("/ask", "topic=«AI trends", "put » where it ends"),
    ("/ask", "lang=ru lang=en", "lang is given again at character 14; say it once: lang=ru"),
    ("/ask", "widow=24h", "'widow=24h' at character 6 is not an argument; did you mean window=24h?"),
    ("/ask", "--verbose", "'--verbose' at character 6 is not an argument"),
    ("/ask --depth=shallow", "", "'shallow' at character 14 is not a value of depth"),
    ("/ask", "x" * MAX_COMMAND_CHARS, "write at most 4,096"),
]


@pytest.mark.parametrize(("typed", "command"), COMMANDS)
def test_commands_have_one_normal_form(typed, command):
    """Every spelling of a command is that command."""
    assert command is parse_command(typed).command


@pytest.mark.parametrize(("args", "said"), ARGUMENTS.items())
def test_arguments_mean_what_they_say(args, said):
    """Every form of an argument is understood, and nothing else is."""
    assert ParsedCommand(command=Command.ASK, **said) == parse_command("/ask", args)


@pytest.mark.parametrize("args", ARGUMENTS)
def test_what_is_printed_is_understood_as_the_same(args):
    """A printed command parses to the command it was printed from."""
    once = parse_command("/synthesize", args)

    assert once == parse_command(once.to_command_line())


@pytest.mark.parametrize(("command", "args", "sentence"), REFUSED)
def test_what_is_not_understood_is_named(command, args, sentence):
    """An error says what was not understood, where, and what would have been."""
    with pytest.raises(InvalidRequest) as refusal:
        parse_command(command, args)

    assert sentence in str(refusal.value)


def test_all_of_a_graph_command_is_its_query():
    """Without a key, the whole of the arguments is what the graph is asked."""
    assert parse_command("/graph", "neural networks architecture").text == "neural networks architecture"


@pytest.mark.parametrize(("command", "args"), [("/graph query", "languages"), ("/graph", "query languages")])
def test_the_mode_may_stand_among_the_arguments(command, args):
    """A chat that splits at the first blank says the same as one that does not."""
    assert (Command.GRAPH, "languages") == (parse_command(command, args).command, parse_command(command, args).text)


def test_a_mode_is_read_once():
    """The second `query` is a word."""
    assert parse_command("/graph query", "query languages").text == "query languages"


def test_what_is_to_be_stored_is_kept_as_it_stands():
    """Bare windows, flags, quotes and line breaks of a memory are its own."""
    text = 'Anna said "hello"\n  within 24h, lang ru, no-rerank, --x'

    assert ParsedCommand(command=Command.STORE, text=text) == parse_command("/memory store", text)


def test_keys_around_a_memory_are_still_keys():
    """A sign makes a key, also beside a text that is to be stored."""
    assert ParsedCommand(command=Command.STORE, text="the pump leaks", topic="pumps") == parse_command(
        "/memory store", "the pump leaks topic=pumps"
    )


@pytest.mark.parametrize("key", ArgumentKey)
def test_every_key_has_a_form_that_is_understood(key):
    """What errors show as valid is."""
    parse_command("/graph", EXAMPLES[key])


@pytest.mark.parametrize("alias", ALIASES)
def test_keys_do_not_care_for_case(alias):
    """An alias in capitals is the same alias."""
    example = EXAMPLES[ALIASES[alias]].partition("=")[2]

    assert parse_command("/graph", f"{alias}={example}") == parse_command("/graph", f"{alias.upper()}={example}")


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in CLOSED_VALUES.items() for value in values])
def test_every_spelling_of_a_value_is_understood(key, value):
    """Each value of a closed set, in each of its spellings, is accepted."""
    parse_command("/ask", f"{key}={value}")


def test_windows_widen_in_the_documented_order():
    """From six hours to a year, and a day goes on like 24 hours."""
    chain = [Window.SIX_HOURS]
    while (following := chain[-1].wider) is not None:
        chain.append(following)

    assert "6h 12h 24h 3d 1w 2w 1m 3m 6m 1y".split() == chain
    assert Window.THREE_DAYS is Window.ONE_DAY.wider


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("limit=5", "k=5"),
        ("since=3d", "window=3d"),
        ("days=3", "window=3d"),
        ("days=7", "window=1w"),
        ("since=30d", "window=1m"),
        ("topc=AI", "topic=AI"),
        ("limit = 7", "k=7"),
        ("since=yesterday", "window=24h"),
        ("language=ru", "lang=ru"),
        ("windwo=3d", "window=3d"),
        ("sorces=a.example", "sources="),
    ],
)
def test_a_word_that_means_a_key_is_refused_with_the_key(word, meant):
    """A key within two edits, or one that people write for it, is named instead of becoming text."""
    with pytest.raises(InvalidRequest, match="did you mean") as refused:
        parse_command("/ask", f"port strike {word}")

    assert meant in str(refused.value)


@pytest.mark.parametrize("word", ["E=mc2", "colour=red", "a=b"])
def test_any_other_word_with_a_sign_stays_text(word):
    """What is like no key is part of the question."""
    assert word in parse_command("/ask", f"what is {word}").text


def test_a_window_before_punctuation_is_understood():
    """A question mark after a bare window does not make it text."""
    parsed = parse_command("/ask", "what happened in the last 1w?")

    assert ("1w", "what happened") == (parsed.window, parsed.text)
