"""Parser of slash commands: tokens, arguments and values of a line become a `ParsedCommand`.

Raises `InvalidRequest` that says what was not understood, at which character, and shows a valid form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from enum import StrEnum
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from contexture.builders.command import syntax
from contexture.errors import InvalidRequest
from contexture.news.articles import normalize_domain

MAX_COMMAND_CHARS = 4_096
"""Maximum characters of a command with its arguments."""

_FIRST_WORD = re.compile(r"\s*(\S*)")
_COMMAND_SIMILARITY = 0.6
_MODE_SIMILARITY = 0.8


def parse_command(raw_command: str, args: str = "") -> syntax.ParsedCommand:
    """Parse a command line.

    parse_command("/ask", 'window=24h topic="AI trends" k=8')

    Raises `InvalidRequest` that says what was not understood, where, and shows a valid form.
    """
    line = f"{raw_command} {args}" if args else raw_command
    if len(line) > MAX_COMMAND_CHARS:
        raise InvalidRequest(f"the command has {len(line):,} characters; write at most {MAX_COMMAND_CHARS:,}")
    name, start = _read_name(line)
    found = tokenize(line, start)
    command, used = _read_mode(name, found)
    given = ArgumentReader(line, found[used:], verbatim=command is syntax.Command.STORE).read()
    return _make_parsed(command, given.values, given.text)


def _read_name(line: str) -> tuple[str, int]:
    """The command word and where it ends; a chat suffix such as `@bot` is ignored."""
    found = _FIRST_WORD.match(line)
    word = found[1] if found else ""
    name = word.partition("@")[0].lower()
    if name not in syntax.MODES:
        raise InvalidRequest(_unknown_command_message(word, name))
    return name, len(found[0]) if found else 0


def _unknown_command_message(word: str, name: str) -> str:
    if not word:
        return f"there is no command; begin with one of {', '.join(syntax.MODES)}, such as /ask window=24h topic=AI"
    close = get_close_matches(f"/{name.lstrip('/')}", syntax.MODES, n=1, cutoff=_COMMAND_SIMILARITY)
    meant = f"did you mean {close[0]}?" if close else f"there are {', '.join(syntax.MODES)}"
    return f"{word[:ERROR_EXCERPT_CHARS]!r} is not a command; {meant}"


def _read_mode(name: str, found: Sequence[Token]) -> tuple[syntax.Command, int]:
    """The command with its mode, and how many tokens that takes."""
    modes = syntax.MODES[name]
    first = found[0].text.lower() if found and found[0].kind is TokenKind.WORD else ""
    if not first or name != "/memory" or first in modes:
        return modes.get(first, modes[""]), int(first in modes and bool(first))
    if close := get_close_matches(first, modes, n=1, cutoff=_MODE_SIMILARITY):
        raise InvalidRequest(
            f"{first!r} at character {found[0].start + 1} is not a mode of /memory; did you mean /memory {close[0]}? "
            f'Words to look for can stand in quotes: /memory recall "{first}"'
        )
    return modes[""], 0


def _make_parsed(command: syntax.Command, values: dict[syntax.ArgumentKey, Any], text: str) -> syntax.ParsedCommand:
    window, rerank = values.get(syntax.ArgumentKey.WINDOW), values.get(syntax.ArgumentKey.RERANK)
    k, hops, query = (
        values.get(syntax.ArgumentKey.K),
        values.get(syntax.ArgumentKey.HOPS),
        values.get(syntax.ArgumentKey.QUERY),
    )
    return syntax.ParsedCommand(
        command=command,
        window=None if window is None else syntax.Window(window),
        lang=values.get(syntax.ArgumentKey.LANG),
        sources=values.get(syntax.ArgumentKey.SOURCES, ()),
        domains=values.get(syntax.ArgumentKey.DOMAINS, ()),
        topic=values.get(syntax.ArgumentKey.TOPIC),
        entity=values.get(syntax.ArgumentKey.ENTITY),
        query=f"{query} {text}" if query is not None and text else query,
        text="" if query is not None else text,
        k=None if k is None else int(k),
        hops=None if hops is None else int(hops),
        rerank=None if rerank is None else rerank == "true",
        policy=values.get(syntax.ArgumentKey.POLICY),
    )


_OPTION_PATTERN = re.compile(r"(-{2})?([^\W\d][\w-]*+)(=)?")
_SENTENCE_MARKS = ",;:.?!)\u2026"  # what may follow a word in a question
_MAX_LEAD_IN = 3
_LEAD_IN = re.compile(r"(?:(?:in|over|during|for|within|from) )?(?:the )?(?:last|past)|за(?: последн\w+)?|последн\w+")
_ASSIGNED = re.compile(r"\s*=(?!=)\s*(\S*)")
_MAX_EDITS = 2
_MIN_LETTERS_PER_EDIT = 2  # a short word becomes any other with two edits
_COMMONLY_MEANT: Mapping[str, syntax.ArgumentKey] = MappingProxyType(
    {
        **dict.fromkeys(("limit", "top", "count", "n", "max", "top_k", "лимит"), syntax.ArgumentKey.K),
        **dict.fromkeys(
            ("since", "days", "period", "from", "last", "timeframe", "дней", "дни"), syntax.ArgumentKey.WINDOW
        ),
        **dict.fromkeys(("language", "locale"), syntax.ArgumentKey.LANG),
        **dict.fromkeys(("site", "sites", "publisher", "сайт"), syntax.ArgumentKey.SOURCES),
        **dict.fromkeys(("subject", "about"), syntax.ArgumentKey.TOPIC),
        **dict.fromkeys(("q", "question", "search"), syntax.ArgumentKey.QUERY),
        **dict.fromkeys(("person", "company"), syntax.ArgumentKey.ENTITY),
    }
)


def find_meant_key(name: str) -> syntax.ArgumentKey | None:
    """The key that a word before `=` stands for: one it is commonly written for, or one within two edits of it."""
    if name in _COMMONLY_MEANT:
        return _COMMONLY_MEANT[name]
    edits = {known: count_edits(name, known) for known in syntax.ALIASES}
    nearest = min(edits, key=lambda known: (edits[known], known))
    allowed = min(_MAX_EDITS, len(name) // _MIN_LETTERS_PER_EDIT - 1)
    return syntax.ALIASES[nearest] if 0 < edits[nearest] <= allowed else None


def count_edits(one: str, other: str) -> int:
    """The edit distance of two words; swapped neighbours are one edit."""
    if abs(len(one) - len(other)) > _MAX_EDITS:
        return _MAX_EDITS + 1
    rows = [list(range(len(other) + 1))]
    for at, letter in enumerate(one, start=1):
        row = [at]
        for to, wanted in enumerate(other, start=1):
            cost = min(rows[-1][to] + 1, row[-1] + 1, rows[-1][to - 1] + (letter != wanted))
            if at > 1 and to > 1 and letter == other[to - 2] and one[at - 2] == wanted:
                cost = min(cost, rows[-2][to - 2] + 1)
            row.append(cost)
        rows.append(row)
    return rows[-1][-1]


_SPACED_KEYS = tuple(key for key in (*syntax.CLOSED_VALUES, *syntax.BOUNDS) if key is not syntax.ArgumentKey.RERANK)


class ParsedArguments(NamedTuple):
    """The values of a line by key, and the remaining text."""

    values: dict[syntax.ArgumentKey, str | tuple[str, ...]]
    text: str


class _BareArgument(NamedTuple):
    """An argument given without `=` or `:`, and how many tokens it takes."""

    key: syntax.ArgumentKey
    value: str
    used: int


class ArgumentReader:
    """Reads the tokens of one line from left to right.

    An unquoted value extends to the next key, flag or bare window. Forms without `=` or `:` count only for keys that
    are not given with one, and the first of them wins. `verbatim` keeps words as they are.
    """

    def __init__(self, line: str, tokens: Sequence[Token], *, verbatim: bool = False) -> None:
        self._line = line
        self._tokens = tokens
        self._verbatim = verbatim
        self._signed = {syntax.ArgumentKey(token.text) for token in tokens if token.kind is TokenKind.KEY}
        self._values: dict[syntax.ArgumentKey, str | tuple[str, ...]] = {}
        self._rest: list[Token] = []
        self._at = 0

    def read(self) -> ParsedArguments:
        """All values by key, and the remaining text."""
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            form = self._match_bare(self._at)
            if token.kind is TokenKind.KEY:
                self._at += 1
                self._assign(syntax.ArgumentKey(token.text), token)
            elif form is not None:
                if form.key is syntax.ArgumentKey.WINDOW:
                    self._drop_lead_in()
                self._values[form.key] = form.value
                self._at += form.used
            else:
                self._reject_misspelled(token)
                self._rest.append(token)
                self._at += 1
        return ParsedArguments(self._values, self._join_tokens(self._rest))

    def _drop_lead_in(self) -> None:
        """Remove the words that lead to a bare window from the text, such as `in the last`."""
        del self._rest[len(self._rest) - self._count_lead_in() :]

    def _count_lead_in(self) -> int:
        """How many of the last words of the text lead to a window."""
        words = [token.text.lower() if token.kind is TokenKind.WORD else "" for token in self._rest[-_MAX_LEAD_IN:]]
        counts = range(len(words), 0, -1)
        return next((count for count in counts if _LEAD_IN.fullmatch(" ".join(words[-count:]))), 0)

    def _assign(self, key: syntax.ArgumentKey, token: Token) -> None:
        value = self._read_value(key, token)
        if self._values.get(key, value) != value:
            raise InvalidRequest(
                f"{key} is given again at character {token.start + 1}; say it once: {syntax.EXAMPLES[key]}"
            )
        self._values[key] = value

    def _read_value(self, key: syntax.ArgumentKey, token: Token) -> str | tuple[str, ...]:
        if key in syntax.LIST_KEYS:
            return split_sources(self._take_list()) or self._raise_missing(key, token)
        if key in syntax.CLOSED_VALUES or key in syntax.BOUNDS:
            taken = self._take_token()
            return require_value(key, taken) if taken else self._raise_missing(key, token)
        found = self._take_words()
        return found if found.strip() else self._raise_missing(key, token)

    def _raise_missing(self, key: syntax.ArgumentKey, token: Token) -> str:
        raise InvalidRequest(f"{key} at character {token.start + 1} has no value; write {syntax.EXAMPLES[key]}")

    def _take_token(self) -> Token | None:
        """The next token, unless it is a key."""
        if self._at >= len(self._tokens) or self._tokens[self._at].kind is TokenKind.KEY:
            return None
        self._at += 1
        return self._tokens[self._at - 1]

    def _take_words(self) -> str:
        """A quoted value, or all words up to the next key, flag or bare window."""
        first = self._take_token()
        if first is None or first.kind is TokenKind.QUOTED:
            return first.text if first else ""
        taken = [first]
        while self._at < len(self._tokens) and self._match_bare(self._at) is None and (more := self._take_token()):
            taken.append(more)
        return self._join_tokens(taken)

    def _take_list(self) -> str:
        """Names separated by commas, with or without blanks around them."""
        taken = self._take_token()
        found = taken.text if taken else ""
        while taken and self._list_continues(found) and (taken := self._take_token()):
            found += taken.text
        return found

    def _list_continues(self, found: str) -> bool:
        if self._at >= len(self._tokens):
            return False
        following = self._tokens[self._at]
        return following.kind is not TokenKind.KEY and (found.endswith(",") or following.text.startswith(","))

    def _match_bare(self, at: int) -> _BareArgument | None:
        """A flag, a bare window, or a key and a closed value separated by a blank; else None."""
        token = self._tokens[at]
        if token.kind is not TokenKind.WORD or self._verbatim:
            return None
        word = token.text.lstrip("(").rstrip(_SENTENCE_MARKS).lower()
        name = word.lstrip("-") if word.startswith("--") else word
        following = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        value = following.text if following and following.kind is TokenKind.WORD else ""
        found = self._match_flag(name, value) or self._match_window(word) or self._match_spaced(name, value)
        return found if found and found.key not in self._signed and found.key not in self._values else None

    def _match_flag(self, name: str, value: str) -> _BareArgument | None:
        if name not in syntax.RERANK_FLAGS:
            return None
        said = lookup_value(syntax.ArgumentKey.RERANK, value) if name == syntax.ArgumentKey.RERANK else None
        return _BareArgument(syntax.ArgumentKey.RERANK, said or syntax.RERANK_FLAGS[name], 2 if said else 1)

    def _match_window(self, word: str) -> _BareArgument | None:
        """A bare window; a Russian one such as `3м` only after words that lead to it: metres are written so too."""
        known = syntax.CLOSED_VALUES[syntax.ArgumentKey.WINDOW] if self._count_lead_in() else syntax.WINDOWS
        return _BareArgument(syntax.ArgumentKey.WINDOW, known[word], 1) if word in known else None

    def _match_spaced(self, name: str, value: str) -> _BareArgument | None:
        key = syntax.ALIASES.get(name)
        said = lookup_value(key, value) if key and key in _SPACED_KEYS else None
        return _BareArgument(key, said, 2) if key and said else None

    def _reject_misspelled(self, token: Token) -> None:
        """Raise `InvalidRequest` for an unknown option or a misspelled key that would otherwise count as text."""
        found = _OPTION_PATTERN.match(token.text) if token.kind is TokenKind.WORD and not self._verbatim else None
        assigned = _ASSIGNED.match(self._line, token.start + found.end(2)) if found else None
        if found is None or not (found[1] or assigned):
            return
        name = found[2].lower()
        key = find_meant_key(name)
        if not found[1] and key is None:
            return
        value = assigned[1] if assigned else ""
        meant = (
            f"did you mean {_suggest_argument(key, value)}?" if key else f"there are {', '.join(syntax.ArgumentKey)}."
        )
        raise InvalidRequest(
            f"{token.text[:ERROR_EXCERPT_CHARS]!r} at character {token.start + 1} is not an argument; {meant} "
            "Text to be taken as it is can stand in quotes."
        )

    def _join_tokens(self, taken: Sequence[Token]) -> str:
        """Tokens as one text without trailing separators; a single quoted text without its quotes."""
        if len(taken) == 1 and taken[0].kind is TokenKind.QUOTED:
            return taken[0].text if taken[0].text.strip() else ""
        pieces = [self._line[token.start : token.end] for token in taken]
        gaps = [self._gap_between(left, right) for left, right in pairwise(taken)]
        text = "".join(part for both in zip(pieces, [*gaps, ""], strict=True) for part in both) if taken else ""
        return text if self._verbatim else text.rstrip(",; ")

    def _gap_between(self, left: Token, right: Token) -> str:
        between = self._line[left.end : right.start]
        return between if self._verbatim and not between.strip() else " "


_NUMBER = re.compile(r"[+-]?\d+")


def lookup_value(key: syntax.ArgumentKey, text: str) -> str | None:
    """The normalized value of a key with a closed set, numbers clamped; None when the text is not in it."""
    word = text.rstrip(_SENTENCE_MARKS).lower()
    if key in syntax.CLOSED_VALUES:
        return syntax.CLOSED_VALUES[key].get(word)
    if key not in syntax.BOUNDS or not _NUMBER.fullmatch(word):
        return None
    low, high = syntax.BOUNDS[key]
    return str(min(max(_parse_int(word), low), high))


def _suggest_argument(key: syntax.ArgumentKey, value: str) -> str:
    """The argument that was meant, with the given value where the key takes it, else with an example."""
    if key not in syntax.CLOSED_VALUES and key not in syntax.BOUNDS and _PLAIN_VALUE.fullmatch(value):
        return f"{key}={value}"
    found = lookup_value(key, value) or (_find_window(value) if key is syntax.ArgumentKey.WINDOW else None)
    return f"{key}={found}" if found else syntax.EXAMPLES[key]


_PLAIN_VALUE = re.compile(r"\w[\w.,-]*")


def _find_window(days: str) -> str | None:
    """The shortest window of at least so many days; None for anything else than a number of days."""
    number = re.fullmatch(r"([1-9]\d{0,2})[dд]?", days.rstrip(_SENTENCE_MARKS).lower())
    spans = (window for window in syntax.Window if number and window.span >= timedelta(days=int(number[1])))
    return next((window.value for window in spans), None)


def require_value(key: syntax.ArgumentKey, token: Token) -> str:
    """The value of a key with a closed set; raises `InvalidRequest` with its position when it is not in it."""
    found = lookup_value(key, token.text)
    if found is None:
        raise InvalidRequest(
            f"{token.text[:ERROR_EXCERPT_CHARS]!r} at character {token.start + 1} is not a value of {key}: "
            f"{_describe_choices(key)}, such as {syntax.EXAMPLES[key]}"
        )
    return found


def split_sources(text: str) -> tuple[str, ...]:
    """The source domains in a list, normalized and unique."""
    spelled = (_normalize_domain(part) for part in re.split(r"[,;]", text))
    return tuple(dict.fromkeys(name for name in spelled if name))


def _normalize_domain(name: str) -> str:
    """A domain in its normal form; normalization is repeated until it changes nothing, so the result is stable."""
    while (bare := normalize_domain(name)) != name:
        name = bare
    return name


def _parse_int(word: str) -> int:
    """The number from its first six digits: the value is clamped later, and `int` rejects very long digit strings."""
    sign = -1 if word.startswith("-") else 1
    digits = word.lstrip("+-").lstrip("0")
    return sign * int(digits[:6] or "0")


def _describe_choices(key: syntax.ArgumentKey) -> str:
    if key in syntax.BOUNDS:
        low, high = syntax.BOUNDS[key]
        return f"give a whole number from {low} to {high}"
    return f"give one of {', '.join(dict.fromkeys(syntax.CLOSED_VALUES[key].values()))}"


ERROR_EXCERPT_CHARS = 40  # characters of the input that an error message quotes


class TokenKind(StrEnum):
    """Kind of a token."""

    WORD = "word"
    QUOTED = "quoted"
    KEY = "key"


class Token(NamedTuple):
    """One token with its offsets; `text` is the name of a key, or the content of a quoted text without the quotes."""

    kind: TokenKind
    text: str
    start: int
    end: int


_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"\S+")
_KEY = re.compile(r"-{0,2}([^\W\d][\w-]*+)\s*+[=:](?!//)")
_ESCAPED = re.compile(r"\\([\\\"'«»“”„])")
# Groups are atomic, not possessive: before Python 3.11.5 a possessive group keeps half of a repetition.
# A single quote closes only where a word can end, because inside a word it is an apostrophe.
_QUOTES: Mapping[str, re.Pattern[str]] = MappingProxyType(
    {
        '"': re.compile(r'"((?>(?:[^"\\]++|\\.)*))"', re.DOTALL),
        "'": re.compile(r"'((?>(?:[^'\\]++|\\.|'(?![\s,;]|$))*))'(?=[\s,;]|$)", re.DOTALL),
        "«": re.compile(r"«((?>(?:[^«»\\]++|\\.|«[^«»]*+»)*))»", re.DOTALL),
        "“": re.compile(r"“((?>(?:[^”\\]++|\\.)*))”", re.DOTALL),
        "„": re.compile(r"„((?>(?:[^“”\\]++|\\.)*))[“”]", re.DOTALL),
    }
)
_CLOSERS = MappingProxyType({'"': '"', "«": "»", "“": "”", "„": "“"})


def tokenize(text: str, start: int = 0) -> list[Token]:
    """The tokens of a text from `start` on; raises `InvalidRequest` with the position of an unclosed quote."""
    return list(_iter_tokens(text, start))


def _iter_tokens(text: str, start: int) -> Iterator[Token]:
    at = _skip_space(text, start)
    while at < len(text):
        token = _match_key(text, at) or _match_quoted(text, at) or _match_word(text, at)
        yield token
        at = _skip_space(text, token.end)


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _match_key(text: str, at: int) -> Token | None:
    found = _KEY.match(text, at)
    key = syntax.ALIASES.get(found[1].lower()) if found else None
    return Token(TokenKind.KEY, key.value, at, found.end()) if found and key else None


def _match_quoted(text: str, at: int) -> Token | None:
    pattern = _QUOTES.get(text[at])
    if pattern is None:
        return None
    found = pattern.match(text, at)
    if found is not None:
        return Token(TokenKind.QUOTED, _ESCAPED.sub(r"\1", found[1]), at, found.end())
    if text[at] == "'":
        return None
    piece = text[at : at + ERROR_EXCERPT_CHARS]
    raise InvalidRequest(
        f"the quote at character {at + 1} is not closed: {piece!r}; put {_CLOSERS[text[at]]} where it ends"
    )


def _match_word(text: str, at: int) -> Token:
    found = _WORD.match(text, at)
    end = found.end() if found else at + 1
    return Token(TokenKind.WORD, text[at:end], at, end)
