"""What is found in any language: e-mail, cards, bank accounts, network addresses, numbers of American documents."""

from __future__ import annotations

import ipaddress
import re

from contexture.adapters.redaction import words
from contexture.adapters.redaction.checksums import digits, passes_luhn, passes_mod97
from contexture.adapters.redaction.rules import Rule

# ISO 13616: how many characters an IBAN has in each country.
_IBAN_LENGTHS = (
    "AD24 AE23 AL28 AT20 AZ28 BA20 BE16 BG22 BH22 BI27 BR29 BY28 CH21 CR22 CY28 CZ24 DE22 DJ27 DK18 DO28 EE20 EG29 "
    "ES24 FI18 FK18 FO18 FR27 GB22 GE22 GI23 GL18 GR27 GT28 HN28 HR21 HU28 IE22 IL23 IQ23 IS26 IT27 JO30 KW30 KZ20 "
    "LB28 LC32 LI21 LT20 LU20 LV21 LY25 MC27 MD24 ME22 MK19 MN20 MR27 MT31 MU30 NI28 NL18 NO15 OM23 PK24 PL28 PS29 "
    "PT25 QA29 RO24 RS22 RU33 SA24 SC31 SD18 SE24 SI19 SK24 SM27 SO23 ST25 SV28 TL23 TN24 TR26 UA29 VA22 VG24 XK20 YE30"
)
_IBAN_BODIES = "|".join(
    rf"{entry[:2]}\d\d(?:[ -]?[A-Z0-9]){{{int(entry[2:]) - 4}}}+" for entry in _IBAN_LENGTHS.split()
)
# Issuer ranges in use: Visa, Mastercard, Maestro, Amex, Diners, JCB (old ranges too), Discover, UnionPay, Mir.
_ISSUER = re.compile(r"4|5[0-8]|6|2[2-7]|3[04-9]|35|1800|2131")
_CARD_GROUPS = re.compile(r"\d{12,19}|\d{4}([ -])\d{4}\1\d{4}(?:\1\d{1,4}){0,2}|\d{4}([ -])\d{6}\2\d{4,5}")
_CARD = re.compile(r"(?<![\w.,])(?<!\d[ -])\d(?>(?:[ -]?\d){11,18})(?![ -]?\d)(?!\w)", re.ASCII)
_SSN_FORBIDDEN_AREAS = {"000", "666"}
_SHORTEST_IPV6 = 7


def plausible_card(text: str) -> bool:
    """Whether digits grouped as on a card, with an issuer's prefix, pass the Luhn check."""
    return (
        _CARD_GROUPS.fullmatch(text) is not None
        and _ISSUER.match("".join(map(str, digits(text)))) is not None
        and passes_luhn(text)
    )


def reachable_address(text: str) -> bool:
    """Whether this is an IP address that can point at someone: private and local ones cannot."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and len(text) < _SHORTEST_IPV6:
        return False
    local = address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast
    return not local and not any(address in network for network in _PRIVATE)


_PRIVATE = tuple(map(ipaddress.ip_network, ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "0.0.0.0/8", "fc00::/7")))


def possible_ssn(text: str) -> bool:
    """Whether none of the three parts is one that is never issued."""
    area, group, serial = re.findall(r"\d+", text) if re.search(r"\D", text) else (text[:3], text[3:5], text[5:])
    return area not in _SSN_FORBIDDEN_AREAS and area < "900" and group != "00" and serial != "0000"


EMAIL = Rule(
    label="EMAIL",
    pattern=re.compile(
        r"(?<![\w.%+\-])(?:[\w+][\w.!#$%&'*+=?^`{|}~\-]{0,62})?[\w+\-]@"
        r"(?!\dx[\w.]{0,60}\.(?:png|jpe?g|gif|webp|svg|heic)\b)"  # a picture for a dense screen
        r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}(?:xn--[a-z0-9-]{2,40}|[^\W\d_]{2,24})(?![\w@])",
        re.IGNORECASE,
    ),
    unless=re.compile(r"://[^\s/@]{0,40}\Z"),  # `user:password@host` in an address is a credential
    hints=("@",),
)
EMAIL_WITHIN = Rule(  # anna.smith@intranet: no public domain, but a name
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
CARD = Rule(label="CARD", pattern=_CARD, accepts=plausible_card)
CARD_NAMED = Rule(label="CARD", pattern=_CARD, accepts=passes_luhn, near=words.CARD)
IP_V4 = Rule(
    label="IP",
    pattern=re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?!\w|\.\d)", re.ASCII),
    accepts=reachable_address,
    unless=words.VERSION,
    hints=(".",),
)
IP_V6 = Rule(
    label="IP",
    pattern=re.compile(r"(?<![\w:.])(?:[0-9a-f]{0,4}:){2,7}[0-9a-f]{0,4}(?![\w:])", re.IGNORECASE | re.ASCII),
    accepts=reachable_address,
    hints=(":",),
)
SSN = Rule(label="SSN", pattern=re.compile(r"(?<![\w-])\d{3}-\d{2}-\d{4}(?![\w-])", re.ASCII), accepts=possible_ssn)
SSN_NAMED = Rule(
    label="SSN",
    pattern=re.compile(r"(?<![\w-])\d{3}[ .-]?\d{2}[ .-]?\d{4}(?![\w-])", re.ASCII),
    accepts=possible_ssn,
    near=words.SSN,
)
DRIVER_LICENCE = Rule(
    label="DRIVER_LICENSE",
    pattern=re.compile(r"(?<![\w-])[A-Z]{0,2}\d(?:[ -]?\d){5,14}(?![\w-])", re.IGNORECASE | re.ASCII),
    near=words.DRIVER_LICENCE,
    unless=words.PHONE,
)

COMMON = (EMAIL, EMAIL_WITHIN, IBAN, CARD, CARD_NAMED, IP_V4, IP_V6, SSN, SSN_NAMED, DRIVER_LICENCE)
