"""Redaction rules for national document numbers, bank numbers and wallets.

Each number is redacted near a mention of its document only: a check digit accepts a tenth of all numbers, so the
mention decides.
"""

import hashlib
import re
from collections.abc import Callable

from contexture.adapters.redaction._personal_data import ascii_digits, match_any_word, passes_luhn, sum_weighted
from contexture.adapters.redaction._rules import Rule

_DEA_DIGITS = 7
_NHS_WEIGHTS = (10, 9, 8, 7, 6, 5, 4, 3, 2)
_TFN_WEIGHTS = (1, 4, 3, 7, 5, 8, 6, 9, 10)
_MEDICARE_WEIGHTS = (1, 3, 7, 9, 1, 3, 7, 9)
_PESEL_WEIGHTS = (1, 3, 7, 9, 1, 3, 7, 9, 1, 3, 1)
_ABA_WEIGHTS = (3, 7, 1, 3, 7, 1, 3, 7, 1)
_NIF_LETTERS = "TRWAGMYFPDXBNJZSQVHLCKE"
_NIE_DIGITS = str.maketrans("XYZ", "012")
_FISCAL_ODD_LETTERS = (1, 0, 5, 7, 9, 13, 15, 17, 19, 21, 2, 4, 18, 20, 11, 3, 6, 8, 12, 14, 16, 10, 22, 25, 24, 23)
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_BYTES = 25
_BECH32 = "qpzry9x8gf2tvdw0s3jn54khce6mua7l"
_BECH32_GENERATORS = (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3)
_BECH32_CHECKSUMS = frozenset({1, 0x2BC830A3})  # of the first and of the later versions
# The dihedral group of ten elements: Verhoeff's check digit.
_DIHEDRAL = tuple(
    tuple((a + b) % 5 + 5 * (b // 5) if a < 5 else (a - b) % 5 + 5 * (1 - b // 5) for b in range(10))  # noqa: PLR2004
    for a in range(10)
)
_PERMUTATION = (1, 5, 7, 6, 2, 8, 3, 0, 9, 4)


def passes_dea(text: str) -> bool:
    """Whether the last digit of a prescriber's number checks the six before it."""
    found = ascii_digits(text)[-_DEA_DIGITS:]
    return (sum(found[0:6:2]) + 2 * sum(found[1:6:2])) % 10 == found[6]


def passes_nhs(text: str) -> bool:
    """Whether the tenth digit of an NHS number checks the others."""
    found = ascii_digits(text)
    return any(found) and -sum_weighted(_NHS_WEIGHTS, found) % 11 == found[9]


def passes_tfn(text: str) -> bool:
    """Whether the digits of an Australian tax file number add up."""
    found = ascii_digits(text)
    return any(found) and sum_weighted(_TFN_WEIGHTS, found) % 11 == 0


def passes_medicare(text: str) -> bool:
    """Whether the ninth digit of an Australian Medicare number checks the eight before it."""
    found = ascii_digits(text)
    return sum_weighted(_MEDICARE_WEIGHTS, found) % 10 == found[8]


def passes_pesel(text: str) -> bool:
    """Whether the digits of a Polish PESEL add up."""
    found = ascii_digits(text)
    return any(found) and sum_weighted(_PESEL_WEIGHTS, found) % 10 == 0


def passes_routing(text: str) -> bool:
    """Whether the digits of an American routing number add up."""
    found = ascii_digits(text)
    return any(found) and sum_weighted(_ABA_WEIGHTS, found) % 10 == 0


def passes_verhoeff(text: str) -> bool:
    """Whether the last digit is the Verhoeff check digit of the others."""
    check = 0
    for place, digit in enumerate(reversed(ascii_digits(text))):
        permuted = digit
        for _ in range(place % 8):
            permuted = _PERMUTATION[permuted]
        check = _DIHEDRAL[check][permuted]
    return check == 0


def passes_nif(text: str) -> bool:
    """Whether the last letter of a Spanish NIF or NIE checks its number."""
    compact = re.sub(r"\W", "", text).upper()
    return _NIF_LETTERS[int(compact[:-1].translate(_NIE_DIGITS)) % len(_NIF_LETTERS)] == compact[-1]


def passes_fiscal_code(text: str) -> bool:
    """Whether the last letter of an Italian fiscal code checks the fifteen characters before it."""
    code = text.upper()
    values = [int(char) if char.isdigit() else ord(char) - ord("A") for char in code]
    return (sum(_FISCAL_ODD_LETTERS[value] for value in values[0:15:2]) + sum(values[1:15:2])) % 26 == values[15]


def passes_bitcoin(text: str) -> bool:
    """Whether a Bitcoin address carries the right checksum."""
    return _passes_bech32(text.lower()) if text[:3].lower() == "bc1" else _passes_base58(text)


def _passes_base58(text: str) -> bool:
    number = 0
    for char in text:
        number = number * len(_BASE58) + _BASE58.index(char)
    if number.bit_length() > 8 * _BASE58_BYTES:
        return False
    data = number.to_bytes(_BASE58_BYTES, "big")
    return hashlib.sha256(hashlib.sha256(data[:-4]).digest()).digest()[:4] == data[-4:]


def _passes_bech32(text: str) -> bool:
    prefix, _, data = text.partition("1")
    values = [*(ord(char) >> 5 for char in prefix), 0, *(ord(char) & 31 for char in prefix), *map(_BECH32.index, data)]
    check = 1
    for value in values:
        top = check >> 25
        check = (check & 0x1FFFFFF) << 5 ^ value
        for bit, generator in enumerate(_BECH32_GENERATORS):
            check ^= generator if top >> bit & 1 else 0
    return check in _BECH32_CHECKSUMS


def _rule(label: str, pattern: str, *near: str, accepts: Callable[[str], bool] | None = None) -> Rule:
    """A rule for a number that follows one of these lower-case words."""
    return Rule(
        label=label,
        pattern=re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE | re.ASCII),
        accepts=accepts,
        near=match_any_word(*(re.escape(word.rstrip()) + (r"\b" if word.endswith(" ") else "") for word in near)),
        hints=near,
    )


DOCUMENT_RULES = (
    _rule(
        "CRYPTO", f"(?-i:[13][{_BASE58}]{{25,33}})|bc1[{_BECH32}]{{11,71}}",
        "wallet", "bitcoin", "btc", "crypto", "кошел", "биткоин", accepts=passes_bitcoin,
    ),
    _rule("MEDICAL_LICENSE", r"[A-Z][A-Z9]\d{7}", "medical licen", "dea ", "dea:", "prescriber", accepts=passes_dea),
    _rule("US_ITIN", r"9\d\d[ -]?(?:5\d|6[0-5]|7\d|8[0-8]|9[0-24-9])[ -]?\d{4}", "itin", "taxpayer", "tax id"),
    _rule("US_PASSPORT", r"\d{9}|[A-Z]\d{8}", "passport"),
    _rule("US_BANK_NUMBER", r"\d{8,17}", "bank account", "account no", "account num", "account #"),
    _rule("ABA_ROUTING_NUMBER", r"[0123678]\d{3}-?\d{4}-?\d", "aba ", "aba:", "routing", accepts=passes_routing),
    _rule("UK_NHS", r"\d{3}[ -]?\d{3}[ -]?\d{4}", "nhs", "national health", accepts=passes_nhs),
    _rule(
        "UK_NINO", r"(?!bg|gb|nk|kn|nt|tn|zz)[a-ceghj-pr-tw-z][a-ceghj-npr-tw-z](?: ?\d\d){3} ?[a-d]",
        "nino", "national insurance", "ni num",
    ),
    _rule("AU_TFN", r"\d{3}[ -]?\d{3}[ -]?\d{3}", "tfn", "tax file", accepts=passes_tfn),
    _rule("AU_MEDICARE", r"[2-6]\d{3}[ -]?\d{5}[ -]?\d", "medicare", accepts=passes_medicare),
    _rule("CA_SIN", r"[1-79]\d{2}[ -]?\d{3}[ -]?\d{3}", "sin ", "sin:", "social insurance", accepts=passes_luhn),
    _rule("IN_AADHAAR", r"[2-9]\d{3}[ -:]?\d{4}[ -:]?\d{4}", "aadhaar", "aadhar", "uidai", accepts=passes_verhoeff),
    _rule("IN_PAN", r"[A-Z]{5}\d{4}[A-Z]", "pan ", "pan:", "permanent account"),
    _rule("SG_NRIC_FIN", r"[STFGM]\d{7}[A-Z]", "nric", "fin ", "fin:"),
    _rule("ES_NIF", r"[XYZ]-?\d{7}-?[A-Z]|\d{7,8}-?[A-Z]", "nif", "nie ", "nie:", "dni", accepts=passes_nif),
    _rule(
        "IT_FISCAL_CODE", r"[A-Z]{6}\d{2}[A-EHLMPRST]\d{2}[A-Z]\d{3}[A-Z]", "codice fiscale", "fiscal code",
        accepts=passes_fiscal_code,
    ),
    _rule("PL_PESEL", r"\d{11}", "pesel", accepts=passes_pesel),
)  # fmt: skip
"""Rules by the words that announce a document; `near` is looked for as `Rule` describes."""
