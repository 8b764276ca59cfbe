"""Arguments read from tokens: values of keys, flags, bare windows, and the text that is left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches
from itertools import pairwise
from typing import NamedTuple

from contexture.builders.command.lexer import SHOWN, Kind, Token
from contexture.builders.command.values import closed_value, names_of, understood
from contexture.builders.command.words import ALIASES, BOUNDS, CLOSED, EXAMPLES, FLAGS, LISTS, WINDOWS, Key
from contexture.errors import InvalidRequest

_OPTION = re.compile(r"(-{2})?([^\W\d][\w-]*+)(=)?")
_CLOSE = 0.8
_SPACED = tuple(key for key in (*CLOSED, *BOUNDS) if key is not Key.RERANK)


class Read(NamedTuple):
    """What arguments say: a value for each key, and the rest."""

    values: dict[Key, str | tuple[str, ...]]
    text: str


class _Form(NamedTuple):
    """A value given without a sign, and how many tokens it takes."""

    key: Key
    value: str
    used: int


class Arguments:
    """Reads the tokens of one line from left to right.

    A value without quotes goes on to the next key, flag or bare window. Forms without `=` or `:` count only for keys
    that are not given with one, and the first of them wins. `verbatim` leaves words alone: they are to be kept.
    """

    def __init__(self, line: str, tokens: Sequence[Token], *, verbatim: bool = False) -> None:
        self._line = line
        self._tokens = tokens
        self._verbatim = verbatim
        self._signed = {Key(token.text) for token in tokens if token.kind is Kind.KEY}
        self._values: dict[Key, str | tuple[str, ...]] = {}
        self._rest: list[Token] = []
        self._at = 0

    def read(self) -> Read:
        """Every value, and the text outside of them."""
        while self._at < len(self._tokens):
            token = self._tokens[self._at]
            form = self._form(self._at)
            if token.kind is Kind.KEY:
                self._at += 1
                self._assign(Key(token.text), token)
            elif form is not None:
                self._values[form.key] = form.value
                self._at += form.used
            else:
                self._refuse_slips(token)
                self._rest.append(token)
                self._at += 1
        return Read(self._values, self._joined(self._rest))

    def _assign(self, key: Key, token: Token) -> None:
        value = self._value(key, token)
        if self._values.get(key, value) != value:
            raise InvalidRequest(f"{key} is given again at character {token.start + 1}; say it once: {EXAMPLES[key]}")
        self._values[key] = value

    def _value(self, key: Key, token: Token) -> str | tuple[str, ...]:
        if key in LISTS:
            return names_of(self._list()) or self._missing(key, token)
        if key in CLOSED or key in BOUNDS:
            taken = self._taken()
            return understood(key, taken) if taken else self._missing(key, token)
        found = self._words()
        return found if found.strip() else self._missing(key, token)

    def _missing(self, key: Key, token: Token) -> str:
        raise InvalidRequest(f"{key} at character {token.start + 1} has no value; write {EXAMPLES[key]}")

    def _taken(self) -> Token | None:
        """The next token, unless it is a key."""
        if self._at >= len(self._tokens) or self._tokens[self._at].kind is Kind.KEY:
            return None
        self._at += 1
        return self._tokens[self._at - 1]

    def _words(self) -> str:
        """A quoted value, or all words up to the next key, flag or bare window."""
        first = self._taken()
        if first is None or first.kind is Kind.QUOTED:
            return first.text if first else ""
        taken = [first]
        while self._at < len(self._tokens) and self._form(self._at) is None and (more := self._taken()):
            taken.append(more)
        return self._joined(taken)

    def _list(self) -> str:
        """Names separated by commas, with or without blanks around them."""
        taken = self._taken()
        found = taken.text if taken else ""
        while taken and self._continues(found) and (taken := self._taken()):
            found += taken.text
        return found

    def _continues(self, found: str) -> bool:
        if self._at >= len(self._tokens):
            return False
        following = self._tokens[self._at]
        return following.kind is not Kind.KEY and (found.endswith(",") or following.text.startswith(","))

    def _form(self, at: int) -> _Form | None:
        """A flag, a bare window, or a key and a value from its closed set with only a blank between them."""
        token = self._tokens[at]
        if token.kind is not Kind.WORD or self._verbatim:
            return None
        word = token.text.rstrip(",;").lower()
        name = word.lstrip("-") if word.startswith("--") else word
        following = self._tokens[at + 1] if at + 1 < len(self._tokens) else None
        value = following.text if following and following.kind is Kind.WORD else ""
        found = self._flag(name, value) or self._bare(word) or self._spaced(name, value)
        return found if found and found.key not in self._signed and found.key not in self._values else None

    def _flag(self, name: str, value: str) -> _Form | None:
        if name not in FLAGS:
            return None
        said = closed_value(Key.RERANK, value) if name == Key.RERANK else None
        return _Form(Key.RERANK, said or FLAGS[name], 2 if said else 1)

    def _bare(self, word: str) -> _Form | None:
        return _Form(Key.WINDOW, WINDOWS[word], 1) if word in WINDOWS else None

    def _spaced(self, name: str, value: str) -> _Form | None:
        key = ALIASES.get(name)
        said = closed_value(key, value) if key and key in _SPACED else None
        return _Form(key, said, 2) if key and said else None

    def _refuse_slips(self, token: Token) -> None:
        """An option that nobody knows, or a key with a slip of the pen, would otherwise pass for text."""
        found = _OPTION.match(token.text) if token.kind is Kind.WORD and not self._verbatim else None
        if found is None or not (found[1] or found[3]):
            return
        name = found[2].lower()
        close = get_close_matches(name, ALIASES, n=1, cutoff=_CLOSE)
        if not found[1] and not close:
            return
        meant = f"did you mean {EXAMPLES[ALIASES[close[0]]]}?" if close else f"there are {', '.join(Key)}."
        raise InvalidRequest(
            f"{token.text[:SHOWN]!r} at character {token.start + 1} is not an argument; {meant} "
            "Text to be taken as it is can stand in quotes."
        )

    def _joined(self, taken: Sequence[Token]) -> str:
        """Words as one text, without what separates it from the next; a single quoted text without its quotes."""
        if len(taken) == 1 and taken[0].kind is Kind.QUOTED:
            return taken[0].text if taken[0].text.strip() else ""
        pieces = [self._line[token.start : token.end] for token in taken]
        gaps = [self._gap(left, right) for left, right in pairwise(taken)]
        text = "".join(part for both in zip(pieces, [*gaps, ""], strict=True) for part in both) if taken else ""
        return text if self._verbatim else text.rstrip(",; ")

    def _gap(self, left: Token, right: Token) -> str:
        between = self._line[left.end : right.start]
        return between if self._verbatim and not between.strip() else " "
