"""What a question asks for, by its form: everything about the user, or how something was before."""

from __future__ import annotations

import re

from contexture.text.terms import split_words

_ABOUT_SELF = re.compile(
    r"\b(?:(?:know|remember|told you|learned|learnt) (?:about|of) (?:me|myself)|what (?:have|did) i (?:told|tell) you"
    r"|tell me about myself|who am i"
    r"|(?:знаешь|помнишь|известно) (?:ты )?(?:обо|про) мн[ея]|обо мне (?:знаешь|помнишь|известно)|кто я"
    r"|я тебе (?:рассказ\w+|говорил\w*))\b"
)
_ABOUT_PAST = re.compile(
    r"\b(?:before|previous(?:ly)?|earlier|formerly|former|originally|original|used to|back then|at first|in the past"
    r"|(?:my|our|the) old|last time|history|changed?"
    r"|раньше|прежде|прежн\w+|ранее|до этого|сначала|изначально|первоначально|в прошлом|бывш\w+"
    r"|стар(?:ый|ая|ое|ые|ого|ой|ому|ую)|менял\w+|изменил\w+)\b"
)


def asks_about_self(question: str) -> bool:
    """Whether a question asks for everything that is known about the user."""
    return _ABOUT_SELF.search(" ".join(split_words(question))) is not None


def asks_about_past(question: str) -> bool:
    """Whether a question wants to know how something was before."""
    return _ABOUT_PAST.search(" ".join(split_words(question))) is not None
