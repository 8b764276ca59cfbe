"""Numbers of Russian documents, most of them with check digits."""

from __future__ import annotations

import re

from contexture.adapters.redaction import words
from contexture.adapters.redaction.checksums import passes_inn, passes_snils
from contexture.adapters.redaction.rules import Rule

PASSPORT = Rule(
    label="RU_PASSPORT",
    pattern=re.compile(r"(?<![\w+\-])(?:\d{2}[ ]\d{2}[ ]|\d{4}[ ]?№[ ]?)\d{6}(?![\w\-])", re.ASCII),
    unless=words.PHONE,
)
PASSPORT_NAMED = Rule(
    label="RU_PASSPORT",
    pattern=re.compile(
        r"(?<![\w+\-])\d{2}[ ]?\d{2}[ ,]{0,2}(?:(?:номер|№|N|no\.?)[ ]?)?\d{6}(?![\w\-])", re.IGNORECASE
    ),
    near=words.PASSPORT,
    unless=words.PHONE,
)
INN_NAMED = Rule(
    label="INN",
    pattern=re.compile(r"(?<!\w)(?:\d{12}|\d{10})(?!\w)", re.ASCII),
    accepts=passes_inn,
    near=words.INN,
)
SNILS = Rule(
    label="SNILS",
    pattern=re.compile(r"(?<![\w\-])\d{3}-\d{3}-\d{3}[ \-]\d{2}(?![\w\-])", re.ASCII),
    accepts=passes_snils,
)
SNILS_NAMED = Rule(
    label="SNILS",
    pattern=re.compile(r"(?<![\w\-])\d{3}[ \-]?\d{3}[ \-]?\d{3}[ \-]?\d{2}(?![\w\-])", re.ASCII),
    accepts=passes_snils,
    near=words.SNILS,
)
BANK_ACCOUNT = Rule(
    label="RU_ACCOUNT",
    pattern=re.compile(r"(?<!\w)[34]0\d{18}(?!\w)", re.ASCII),
)

RUSSIAN = (PASSPORT, PASSPORT_NAMED, INN_NAMED, SNILS, SNILS_NAMED, BANK_ACCOUNT)
