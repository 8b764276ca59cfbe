"""Redaction rules for personal data.

E-mail, payment cards, IBAN, IP addresses, American and Russian document numbers, and telephone numbers, with their
context words and check digits.
"""

import ipaddress
import re
from itertools import starmap
from operator import mul

import phonenumbers

from contexture.adapters.redaction._rules import Rule


def match_any_word(*alternatives: str) -> re.Pattern[str]:
    """Case-insensitive pattern for any of these alternatives at the start of a word."""
    return re.compile(rf"(?<!\w)(?:{'|'.join(alternatives)})", re.IGNORECASE)


PHONE_WORDS = match_any_word(
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
PHONE_WORDS_BEHIND = re.compile(
    r"[ \-–,(/]{0,3}+(?:office|fax|mobile|cell|home|work|desk|phone|tel|direct|main|моб|раб|дом|факс|тел)\b",
    re.IGNORECASE,
)
PHONE_WORDS_RIGHT_BEFORE = re.compile(
    r"(?<!\w)(?:(?:tele)?phone(?: (?:number|no\.?))?|tel|fax|mobile|cell|тел(?:ефон)?|факс|моб)\.?[ ]?[:#№]?[ ]{0,2}\Z",
    re.IGNORECASE,
)
OTHER_NUMBER_WORDS = match_any_word(
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
CARD_WORDS = match_any_word(
    r"(?:credit|debit|bank|payment)?[ -]?cards?\b", "visa", "master ?card", "amex", "american express", "maestro",
    "discover", "diners", "jcb", "карт", r"мир\b", "виза",
)  # fmt: skip
SSN_WORDS = match_any_word(r"ssn\b", "social security")
DRIVER_LICENCE_WORDS = match_any_word(r"driv(?:er'?s?|ing)[ -]licen[cs]e", "водительск", r"в/у\b")
VERSION_WORDS = re.compile(
    r"(?:\bversions?|\bv\.?|\brelease|\bсекци[яи]|\bверси[яиюей]+|§|\bsection|\bEC)\s{0,2}\Z", re.IGNORECASE
)
INN_WORDS = match_any_word(r"инн\b", r"inn\b")
SNILS_WORDS = match_any_word("снилс", "snils", "страхов")
PASSPORT_WORDS = match_any_word("паспорт", r"сери[яию]\b", "passport", "удостоверени")
ACCOUNT_WORDS = match_any_word(r"сч[её]т", r"р/с\b", r"к/с\b", r"рас(?:ч|ч[её]т)", "account")


_INN_10_WEIGHTS = (2, 4, 10, 3, 5, 9, 4, 6, 8)
_INN_11_WEIGHTS = (7, *_INN_10_WEIGHTS)
_INN_12_WEIGHTS = (3, *_INN_11_WEIGHTS)
_SNILS_WEIGHTS = (9, 8, 7, 6, 5, 4, 3, 2, 1)


def ascii_digits(text: str) -> tuple[int, ...]:
    """The ASCII digits of `text`, in order."""
    return tuple(int(char) for char in text if "0" <= char <= "9")


def passes_luhn(text: str) -> bool:
    """Whether the last digit is the Luhn check digit of the others; one repeated digit never is."""
    found = ascii_digits(text)[::-1]
    doubled = sum(sum(divmod(2 * digit, 10)) for digit in found[1::2])
    return len(set(found)) > 1 and (sum(found[0::2]) + doubled) % 10 == 0


def passes_mod97(text: str) -> bool:
    """Whether an IBAN passes the ISO 7064 mod-97 check."""
    compact = "".join(char for char in text if char.isalnum()).upper()
    turned = compact[4:] + compact[:4]
    return turned.isascii() and int("".join(str(int(char, 36)) for char in turned)) % 97 == 1


def sum_weighted(weights: tuple[int, ...], found: tuple[int, ...]) -> int:
    """The sum of the digits times their weights; digits beyond the weights do not count."""
    return sum(starmap(mul, zip(weights, found, strict=False)))


def passes_inn(text: str) -> bool:
    """Whether a Russian taxpayer number of 10 or 12 digits has the right check digits."""
    found = ascii_digits(text)
    if not any(found):
        return False
    if len(found) == len(_INN_10_WEIGHTS) + 1:
        return sum_weighted(_INN_10_WEIGHTS, found) % 11 % 10 == found[9]
    if len(found) == len(_INN_12_WEIGHTS) + 1:
        return (
            sum_weighted(_INN_11_WEIGHTS, found) % 11 % 10,
            sum_weighted(_INN_12_WEIGHTS, found) % 11 % 10,
        ) == found[10:]
    return False


def passes_snils(text: str) -> bool:
    """Whether a Russian insurance number of 11 digits has the right two check digits."""
    found = ascii_digits(text)
    if len(found) != len(_SNILS_WEIGHTS) + 2 or not any(found):
        return False
    return sum_weighted(_SNILS_WEIGHTS, found) % 101 % 100 == 10 * found[9] + found[10]


# ISO 13616: IBAN length by country.
_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
    "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
    "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 "
    "PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
_IBAN_BODIES = "|".join(
    rf"{entry[:2]}\d\d(?:[ .-]?[A-Z0-9]){{{int(entry[2:]) - 4}}}+" for entry in _IBAN_LENGTHS.split()
)
# Issuer ranges in use: Visa, Mastercard, Maestro, Amex, Diners, JCB (old ranges too), Discover, UnionPay, Mir.
_ISSUER = re.compile(r"4|5[0-8]|6|2[2-7]|3[04-9]|35|1800|2131")
_CARD_GROUPED = r"\d{4}(?:[ .\-]{1,3}\d{4}){2}(?:[ .\-]{1,3}\d{1,4}){0,2}|\d{4}[ .\-]{1,3}\d{6}[ .\-]{1,3}\d{4,5}"
_CARD_GROUPS = re.compile(rf"\d{{12,19}}|{_CARD_GROUPED}")
_CARD_PATTERN = re.compile(r"(?<![\w.,])(?<!\d[ -])\d(?>(?:[ -]?\d){11,18})(?![ -]?\d)(?!\w)", re.ASCII)
_CARD_GROUPED_PATTERN = re.compile(rf"(?<![\w.,])(?<!\d[ -])(?:{_CARD_GROUPED})(?![ .\-]?\d)(?!\w)", re.ASCII)
_SSN_FORBIDDEN_AREAS = {"000", "666"}
_SHORTEST_IPV6 = 7


def plausible_card(text: str) -> bool:
    """Whether digits grouped as on a card, with an issuer's prefix, pass the Luhn check."""
    return (
        _CARD_GROUPS.fullmatch(text) is not None
        and _ISSUER.match("".join(map(str, ascii_digits(text)))) is not None
        and passes_luhn(text)
    )


def reachable_address(text: str) -> bool:
    """Whether this is a public IP address; private and local ones identify nobody."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and len(text) < _SHORTEST_IPV6:
        return False
    local = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return not local and not any(address in network for network in _PRIVATE_NETWORKS)


_PRIVATE_NETWORKS = tuple(
    map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "0.0.0.0/8", "fc00::/7"))
)


def possible_ssn(text: str) -> bool:
    """Whether this can be an SSN: none of its three parts has a value that is never issued."""
    digits = "".join(map(str, ascii_digits(text)))
    area, group, serial = digits[:3], digits[3:5], digits[5:]
    return area not in _SSN_FORBIDDEN_AREAS and area < "900" and group != "00" and serial != "0000"


EMAIL = Rule(
    label="EMAIL",
    pattern=re.compile(
        r"(?<![\w.%+\-])(?:[\w+][\w.!#$%&'*+=?^`{|}~\-]{0,62})?[\w+\-]@"
        r"(?!\dx[\w.]{0,60}\.(?:png|jpe?g|gif|webp|svg|heic)\b)"  # image names such as `logo@2x.png`
        r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}(?:xn--[a-z0-9-]{2,40}|[^\W\d_]{2,24})(?![\w@])",
        re.IGNORECASE,
    ),
    unless=re.compile(r"://[^\s/@]{0,40}\Z"),  # `user:password@host` in an address is a credential
    hints=("@",),
)
EMAIL_INTRANET = Rule(  # anna.smith@intranet: no public domain, but it contains a name
    label="EMAIL",
    pattern=re.compile(r"(?<![\w.%+\-])[^\W\d_]{2,30}+\.[^\W\d_]{2,30}+@[^\W_][\w-]{2,62}+(?![\w.@])"),
    unless=EMAIL.unless,
    hints=("@",),
)
URL = Rule(
    label="URL",
    pattern=re.compile(r"""(?<!\w)(?:https?://|www\.)[^\s<>"'`]{2,2000}[^\s<>"'`.,;:!?)\]]""", re.IGNORECASE),
    hints=("://", "www."),
)
IBAN = Rule(
    label="IBAN",
    pattern=re.compile(rf"(?<!\w)(?=[A-Z]{{2}}\d\d)(?:{_IBAN_BODIES})(?!\w)", re.IGNORECASE | re.ASCII),
    accepts=passes_mod97,
)
CARD = Rule(label="CARD", pattern=_CARD_PATTERN, accepts=plausible_card)
CARD_GROUPED = Rule(label="CARD", pattern=_CARD_GROUPED_PATTERN, accepts=plausible_card)
CARD_NAMED = Rule(label="CARD", pattern=_CARD_PATTERN, accepts=passes_luhn, near=CARD_WORDS)
IP_V4 = Rule(
    label="IP",
    pattern=re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)", re.ASCII),
    accepts=reachable_address,
    unless=VERSION_WORDS,
    hints=(".",),
    quick=re.compile(r"\.\d{1,3}\.\d", re.ASCII),
)
IP_V6 = Rule(
    label="IP",
    pattern=re.compile(r"(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])", re.IGNORECASE | re.ASCII),
    accepts=reachable_address,
    hints=(":",),
    quick=re.compile(r":[0-9a-fA-F]{0,4}:", re.ASCII),
)
SSN = Rule(  # with a hyphen or two dots; with spaces alone it needs its name
    label="SSN",
    pattern=re.compile(r"(?<![\w-])\d{3}(?:-\d{2}[ .-]|[ .]\d{2}-|\.\d{2}\.)\d{4}(?![\w-])", re.ASCII),
    accepts=possible_ssn,
)
SSN_NAMED = Rule(
    label="SSN",
    pattern=re.compile(r"(?<![\w-])\d{3}[ .-]{0,3}\d{2}[ .-]{0,3}\d{4}(?![\w-])", re.ASCII),
    accepts=possible_ssn,
    near=SSN_WORDS,
)
DRIVER_LICENCE = Rule(
    label="DRIVER_LICENSE",
    pattern=re.compile(r"(?<![\w-])[A-Z]{0,2}\d(?:[ .-]?\d){5,14}(?![\w-])", re.IGNORECASE | re.ASCII),
    near=DRIVER_LICENCE_WORDS,
    unless=PHONE_WORDS,
)

COMMON_RULES = (
    EMAIL, EMAIL_INTRANET, IBAN, CARD, CARD_GROUPED, CARD_NAMED, IP_V4, IP_V6, SSN, SSN_NAMED, DRIVER_LICENCE,
)  # fmt: skip


_MIN_PHONE_DIGITS, _MAX_PHONE_DIGITS = 7, 15
_MIN_LOCAL_DIGITS = 6
_PHONE_EXTENSION = r"(?:[ ,]{0,2}(?:x|ext\.?|extension|доб\.?)[ ]?\d{1,6})?"
_PHONE_START = r"(?<![\w+])(?<!\d[.,:/])(?<!\w-)"
_PHONE_END = r"(?![A-Za-z]{0,3}\d|[.,:/\-]\d)"
# A round or grouped amount: 2 000 000, 1 234 567.
_AMOUNT = re.compile(r"\d[\d ]*[ .]000|\d(?:[ .]\d{3})+")
_DATE = re.compile(
    r"(?:19|20)\d\d([./ -])\d\d?\1\d\d?(?!\d)|\d\d?([./ -])\d\d?\2(?:19|20)\d\d(?!\d)|(?:19|20)\d\d[ –-](?:19|20)\d\d"
)
_DOTTED_QUAD = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")


def possible_international(text: str) -> bool:
    """Whether this number with a country code has a valid length for that country."""
    number = "+" + "".join(map(str, ascii_digits(re.split(r"[xeд]", text, maxsplit=1)[0].replace("(0)", ""))))
    if not text.startswith("+"):
        number = "+" + number[3:]
    try:
        return phonenumbers.is_possible_number(phonenumbers.parse(number))
    except phonenumbers.NumberParseException:
        return False


def valid_russian(text: str) -> bool:
    """Whether eleven digits starting with 7 or 8 are a valid Russian telephone number."""
    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text, "RU"))
    except phonenumbers.NumberParseException:
        return False


def plausible(text: str) -> bool:
    """Whether this has the digits of a telephone number and is no date, amount or IP address."""
    written = re.split(r"[xeд]", text, maxsplit=1)[0].strip(" ,")
    return (
        _MIN_PHONE_DIGITS <= len(ascii_digits(written)) <= _MAX_PHONE_DIGITS
        and _DATE.match(written) is None
        and _AMOUNT.fullmatch(written) is None
        and _DOTTED_QUAD.fullmatch(written) is None
    )


def long_enough(text: str) -> bool:
    """Whether this has at least as many digits as the shortest local telephone number, and is no date."""
    return _MIN_LOCAL_DIGITS <= len(ascii_digits(text)) <= _MAX_PHONE_DIGITS and _DATE.match(text) is None


PHONE_INTERNATIONAL = Rule(
    label="PHONE",
    pattern=re.compile(
        rf"{_PHONE_START}(?:\+ ?|00[ -]?)(?=[1-9])\d{{1,15}}+"
        rf"(?>(?:[ .\-/]{{0,2}}+\(?\d{{1,12}}+\)?){{0,6}}){_PHONE_EXTENSION}{_PHONE_END}",
        re.ASCII | re.IGNORECASE,
    ),
    accepts=possible_international,
)
PHONE_NATIONAL = Rule(
    label="PHONE",
    pattern=re.compile(
        rf"{_PHONE_START}(?:"
        r"(?:1[ .\-])?\([2-9]\d{2}\)[ .\-]?\d{3}[ .\-]\d{4}"  # (579)888-3058
        r"|(?:1[ .\-])?[2-9]\d{2}(?:[.\-]\d{3}[ .\-]|[ ]\d{3}[.\-])\d{4}"  # 541-714-1388, 930.167.3943, 541 714-1388
        r"|\(0?\d{2,4}\)[ .\-]?\d{3,4}[ .\-]\d{3,4}"  # (99) 645-791
        r"|\(0\d{1,4}\)[ .\-]?\d{5,8}"  # (010) 123456
        r"|0\d(?:[. \-]\d\d){4}"  # 03.93.92.16.85
        r"|0\d{1,4}[ ]\d{2,4}[ ]\d{2,4}(?:[ \-]\d{2,4})?"  # 0490 75 40 81, 07700 063 966
        r"|(?<!\d[ ])0[1-9]\d{0,3}(?:[ ]\d{2,4}-|-\d{2,4}[ ])\d{2,4}(?:[ \-]\d{2,4})?"  # 0490 75-40 81
        rf"){_PHONE_EXTENSION}{_PHONE_END}",
        re.ASCII | re.IGNORECASE,
    ),
    accepts=plausible,
    unless=OTHER_NUMBER_WORDS,
    score=0.6,
)
PHONE_NAMED = Rule(
    label="PHONE",
    pattern=re.compile(
        rf"{_PHONE_START}\(?\d{{1,15}}+\)?(?>(?:[ .\-–/]{{0,2}}+\(?\d{{1,12}}+\)?){{0,6}})"
        rf"{_PHONE_EXTENSION}{_PHONE_END}",
        re.ASCII | re.IGNORECASE,
    ),
    accepts=plausible,
    near=PHONE_WORDS,
    behind=PHONE_WORDS_BEHIND,
    unless=OTHER_NUMBER_WORDS,
    score=0.6,
)
PHONE_DIRECT = Rule(  # "Phone: 712 345": the word directly before is unambiguous, so short and round numbers match
    label="PHONE",
    pattern=re.compile(rf"{_PHONE_START}\d{{1,6}}+(?>(?:[ .\-]\d{{1,6}}+){{0,4}}){_PHONE_END}", re.ASCII),
    accepts=long_enough,
    near=PHONE_WORDS_RIGHT_BEFORE,
    score=0.6,
)
PHONE_RUSSIAN = Rule(
    label="PHONE",
    pattern=re.compile(
        r"(?<![\w+.\-])(?:\+7|[78])[ .\-]?(?:\(\d{3,5}\)|\d{3,4})[ .\-]?\d{2,3}[ .\-]?\d{2}[ .\-]?\d{2}"
        + _PHONE_EXTENSION
        + r"(?![\-.]?\w)",
        re.IGNORECASE,
    ),
    accepts=valid_russian,
    unless=OTHER_NUMBER_WORDS,
)

PHONE_RULES = (PHONE_INTERNATIONAL, PHONE_NATIONAL, PHONE_NAMED, PHONE_DIRECT, PHONE_RUSSIAN)


RU_PASSPORT = Rule(
    label="RU_PASSPORT",
    pattern=re.compile(
        r"(?<![\w+\-])(?:\d{2}[ ]\d{2}[ .\-]|\d{2}[.\-]\d{2}[ ]|\d{4}[ ]?№[ ]?)\d{6}(?![\w\-])", re.ASCII
    ),
    unless=PHONE_WORDS,
)
RU_PASSPORT_NAMED = Rule(
    label="RU_PASSPORT",
    pattern=re.compile(
        r"(?<![\w+\-])\d{2}[ .\-]?\d{2}[ .,\-]{0,2}(?:(?:номер|№|N|no\.?)[ ]?)?\d{6}(?![\w\-])", re.IGNORECASE
    ),
    near=PASSPORT_WORDS,
    unless=PHONE_WORDS,
)
INN_NAMED = Rule(
    label="INN",
    pattern=re.compile(r"(?<!\w)(?:\d{12}|\d{10})(?!\w)", re.ASCII),
    accepts=passes_inn,
    near=INN_WORDS,
)
SNILS = Rule(
    label="SNILS",
    pattern=re.compile(r"(?<![\w\-])\d{3}[ .\-]\d{3}[ .\-]\d{3}[ .\-]\d{2}(?![\w\-])", re.ASCII),
    accepts=passes_snils,
)
SNILS_NAMED = Rule(
    label="SNILS",
    pattern=re.compile(r"(?<![\w\-])\d{3}[ .\-]?\d{3}[ .\-]?\d{3}[ .\-]?\d{2}(?![\w\-])", re.ASCII),
    accepts=passes_snils,
    near=SNILS_WORDS,
)
RU_BANK_ACCOUNT = Rule(
    label="RU_ACCOUNT",
    pattern=re.compile(r"(?<!\w)[34]0\d{18}(?!\w)", re.ASCII),
)

RUSSIAN_RULES = (RU_PASSPORT, RU_PASSPORT_NAMED, INN_NAMED, SNILS, SNILS_NAMED, RU_BANK_ACCOUNT)
