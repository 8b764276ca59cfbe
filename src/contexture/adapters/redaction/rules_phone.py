"""Telephone numbers: international, in national formats that nothing else is written in, or named as such."""

from __future__ import annotations

import re

import phonenumbers

from contexture.adapters.redaction import words
from contexture.adapters.redaction.checksums import digits
from contexture.adapters.redaction.rules import Rule

_FEWEST, _MOST = 7, 15
_SHORTEST_LOCAL = 6
_EXTENSION = r"(?:[ ,]{0,2}(?:x|ext\.?|extension|доб\.?)[ ]?\d{1,6})?"
_START = r"(?<![\w+])(?<!\d[.,:/])(?<!\w-)"
_END = r"(?![A-Za-z]{0,3}\d|[.,:/\-]\d)"
# A round or grouped amount: 2 000 000, 1 234 567.
_AMOUNT = re.compile(r"\d[\d ]*[ .]000|\d(?:[ .]\d{3})+")
_DATE = re.compile(
    r"(?:19|20)\d\d([./ -])\d\d?\1\d\d?(?!\d)|\d\d?([./ -])\d\d?\2(?:19|20)\d\d(?!\d)|(?:19|20)\d\d[ –-](?:19|20)\d\d"
)
_DOTTED_QUAD = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")


def possible_international(text: str) -> bool:
    """Whether this, read with a country code, has a length that country uses."""
    number = "+" + "".join(map(str, digits(re.split(r"[xeд]", text, maxsplit=1)[0].replace("(0)", ""))))
    if not text.startswith("+"):
        number = "+" + number[3:]
    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(number))
    except phonenumbers.NumberParseException:
        return False


def valid_russian(text: str) -> bool:
    """Whether eleven digits from 7 or 8 are a number that can be issued in Russia."""
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text, "RU"))
    except phonenumbers.NumberParseException:
        return False


def plausible(text: str) -> bool:
    """Whether this has as many digits as a telephone number and is no date or address."""
    written = re.split(r"[xeд]", text, maxsplit=1)[0].strip(" ,")
    return (
        _FEWEST <= len(digits(written)) <= _MOST
        and _DATE.match(written) is None
        and _AMOUNT.fullmatch(written) is None
        and _DOTTED_QUAD.fullmatch(written) is None
    )


def long_enough(text: str) -> bool:
    """Whether this has at least as many digits as the shortest local numbers, and is no date."""
    return _SHORTEST_LOCAL <= len(digits(text)) <= _MOST and _DATE.match(text) is None


INTERNATIONAL = Rule(
    label="PHONE",
    pattern=re.compile(
        rf"{_START}(?:\+ ?|00[ -]?)(?=[1-9])\d{{1,15}}+"
        rf"(?>(?:[ .\-/]{{0,2}}+\(?\d{{1,12}}+\)?){{0,6}}){_EXTENSION}{_END}",
        re.ASCII | re.IGNORECASE,
    ),
    accepts=possible_international,
)
NATIONAL = Rule(
    label="PHONE",
    pattern=re.compile(
        rf"{_START}(?:"
        r"(?:1[ .\-])?\([2-9]\d{2}\)[ ]?\d{3}[ .\-]\d{4}"  # (579)888-3058
        r"|(?:1[.\-])?[2-9]\d{2}([.\-])\d{3}\1\d{4}"  # 541-714-1388, 930.167.3943
        r"|\(0?\d{2,4}\)[ ]?\d{3,4}[ \-]\d{3,4}"  # (99) 645-791
        r"|\(0\d{1,4}\)[ ]?\d{5,8}"  # (010) 123456
        r"|0\d([. \-])\d\d\2\d\d\2\d\d\2\d\d"  # 03.93.92.16.85
        r"|0\d{1,4}[ ]\d{2,4}[ ]\d{2,4}(?:[ ]\d{2,4})?"  # 0490 75 40 81, 07700 063 966
        rf"){_EXTENSION}{_END}",
        re.ASCII | re.IGNORECASE,
    ),
    accepts=plausible,
    unless=words.OTHER_NUMBER,
    score=0.6,
)
NAMED = Rule(
    label="PHONE",
    pattern=re.compile(
        rf"{_START}\(?\d{{1,15}}+\)?(?>(?:[ .\-–/]{{0,2}}+\(?\d{{1,12}}+\)?){{0,6}}){_EXTENSION}{_END}",
        re.ASCII | re.IGNORECASE,
    ),
    accepts=plausible,
    near=words.PHONE,
    behind=words.PHONE_BEHIND,
    unless=words.OTHER_NUMBER,
    score=0.6,
)
DIRECT = Rule(  # "Phone: 712 345": the word right before leaves no doubt, so short and round numbers count
    label="PHONE",
    pattern=re.compile(rf"{_START}\d{{1,6}}+(?>(?:[ \-]\d{{1,6}}+){{0,4}}){_END}", re.ASCII),
    accepts=long_enough,
    near=words.PHONE_RIGHT_BEFORE,
    score=0.6,
)
RUSSIAN = Rule(
    label="PHONE",
    pattern=re.compile(
        r"(?<![\w+.\-])(?:\+7|[78])[ \-]?(?:\(\d{3,5}\)|\d{3,4})[ \-]?\d{2,3}[ \-]?\d{2}[ \-]?\d{2}"
        + _EXTENSION
        + r"(?![\-.]?\w)",
        re.IGNORECASE,
    ),
    accepts=valid_russian,
    unless=words.OTHER_NUMBER,
)

PHONES = (INTERNATIONAL, NATIONAL, NAMED, DIRECT, RUSSIAN)
