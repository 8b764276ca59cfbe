"""Words that tell one kind of number from another, in English and Russian."""

from __future__ import annotations

import re


def words(*alternatives: str) -> re.Pattern[str]:
    """A pattern for any of these, at the start of a word, in any case."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})", re.IGNORECASE)


PHONE = words(
    r"(?:tele|smart)?phones?",
    r"tel\b",
    r"mobile",
    r"cell(?:phone|[ ]?(?:num|no\b|[:#(]|is\b|at\b|\Z))",
    r"fax",
    r"desk\b",
    r"office\b",
    r"landline",
    r"hotline",
    r"whatsapp",
    r"viber",
    r"signal\b",
    r"call",
    r"dial",
    r"ring\b",
    r"reach",
    r"contact",
    r"sms\b",
    r"text(?:s|ed|ing)?\b",
    r"messages?\b",
    r"voicemail",
    r"answer",
    r"direct line",
    r"(?:my|his|her|their|our|your|new|old) number",
    r"ext\b",
    r"тел(?:\b|ефон)",
    r"моб(?:\b|ил)",
    r"сот(?:\b|ов)",
    r"факс",
    r"(?:по|пере|до)?звон",
    r"смс\b",
    r"ватсап",
    r"вотсап",
    r"телеграм",
    r"связ",
    r"горяч",
)
PHONE_BEHIND = re.compile(
    r"[ \-–,(/]{0,3}+(?:office|fax|mobile|cell|home|work|desk|phone|tel|direct|main|моб|раб|дом|факс|тел)\b",
    re.IGNORECASE,
)
PHONE_RIGHT_BEFORE = re.compile(
    r"(?<!\w)(?:(?:tele)?phone(?: (?:number|no\.?))?|tel|fax|mobile|cell|тел(?:ефон)?|факс|моб)\.?[ ]?[:#№]?[ ]{0,2}\Z",
    re.IGNORECASE,
)
OTHER_NUMBER = words(
    r"licen[cs]e",
    r"zip\b",
    r"post(?:al)?[ -]?code",
    r"p\.?o\.? box",
    r"account",
    r"invoice",
    r"order",
    r"ticket",
    r"case\b",
    r"ref(?:erence)?\b",
    r"tracking",
    r"serial",
    r"isbn",
    r"issn",
    r"doi\b",
    r"pmid",
    r"version",
    r"ssn\b",
    r"social security",
    r"iban",
    r"card",
    r"passport",
    r"vat\b",
    r"\bid\b",
    r"date",
    r"born",
    r"birth",
    r"price",
    r"total",
    r"sum\b",
    r"инн\b",
    r"кпп\b",
    r"огрн",
    r"бик\b",
    r"снилс",
    r"паспорт",
    r"серия",
    r"сч[её]т",
    r"заказ",
    r"договор",
    r"артикул",
    r"индекс",
    r"карт[аыеуо]",
    r"дат[аыеу]",
    r"сумм",
)
CARD = words(
    r"(?:credit|debit|bank|payment)?[ -]?cards?\b", "visa", "master ?card", "amex", "american express", "maestro",
    "discover", "diners", "jcb", "карт", r"мир\b", "виза",
)  # fmt: skip
SSN = words(r"ssn\b", "social security")
DRIVER_LICENCE = words(r"driv(?:er'?s?|ing)[ -]licen[cs]e", "водительск", r"в/у\b")
VERSION = re.compile(
    r"(?:\bversions?|\bv\.?|\brelease|\bсекци[яи]|\bверси[яиюей]+|§|\bsection|\bEC)\s{0,2}\Z", re.IGNORECASE
)
INN = words(r"инн\b", r"inn\b")
SNILS = words("снилс", "snils", "страхов")
PASSPORT = words("паспорт", r"сери[яию]\b", "passport", "удостоверени")
ACCOUNT = words(r"сч[её]т", r"р/с\b", r"к/с\b", r"рас(?:ч|ч[её]т)", "account")
