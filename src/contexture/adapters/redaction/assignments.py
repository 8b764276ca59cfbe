"""Credentials known by the name they are assigned to: `password = ...`, `api_key: ...`, `пароль: ...`."""

from __future__ import annotations

import re

from contexture.adapters.redaction.rules import LAST, Rule

_OWNERS = (
    "api|auth|access|account|client|db|database|encryption|master|priv(?:ate)?|service|secret|session|sign(?:ing)?"
    "|iam|cloud|ibm|cos|hmac|softlayer|sl|cloudant|cl|storage|shared|webhook"
)
_PASSWORDS = r"(?:pass(?:word|wd|phrase|code)?|pwd|pw|contrase[nñ]a|парол[ьяюе])"
_NAME = (
    rf"(?:{_PASSWORDS}|secret|token|credentials?|токен|секрет(?:ный ключ)?|ключ api"
    rf"|(?:{_OWNERS})[_\-. ]?(?:access[_\-]?)?(?:api[_\-]?)?(?:key|pass))"
)
# A name starts at a word, behind an underscore, or at a hump: dbPassword.
_START = r"(?:(?<![^\W_])|(?<=[a-z])(?-i:(?=[A-Z])))"
_REST = r"(?:_\w{0,24}+)?(?!\w)[\"'\]]{0,2}+"
_SIGN = r"[ \t]{0,8}+(?::=|=>|={1,3}|:{1,2}|!==?)[ \t]{0,8}+"
_SAID = r"[ \t]{1,8}+(?:is|это|[-–—])[ \t]{1,8}+"
_BARE = r"([^\s\"'`,;<>(){}]{6,512}+)"
_LONG = r"([\w\-]{24,128}+)"
_SPACE = r"[ \t]{1,8}+"
_PASSWORD_HINTS = ("pass", "pwd", "pw", "contrase", "парол")

_STAND_IN = re.compile(
    r"[$%{<\[(*]|\A(?:none|null|true|false|undefined|string|bytes|optional|required|password|secret|token)\Z"
    r"|example|sample|dummy|fake|mock|placeholder|change[_\-]?me|redacted|insert|your|_here|not[_\-]|too[_\-]?short"
    r"|x{5}|\.{3}",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[\[(]|[A-Za-z_]+(?:\.[A-Za-z_]+)+\Z|/|https?:")
_DRAWN = re.compile(r"[0-9]|[!#&*+=?@^~|\\]")
_LETTERS = re.compile(r"(?!(.)\1{5})[a-z]{24,}", re.IGNORECASE)


def assigned(value: str) -> bool:
    """Whether a value is a credential: any in quotes that is no stand-in, and a bare one that looks drawn.

    Drawn means not a number, a word, a path or code: bare values stand in prose and in programs.
    """
    if _STAND_IN.search(value.strip("\"'`")):
        return False
    if value[0] in "\"'`":
        return True
    core = value.strip("!?.:…*_-")
    if _CODE.match(value) or value.isdigit():
        return False
    return _DRAWN.search(core) is not None or _LETTERS.fullmatch(core) is not None


ASSIGNMENTS = (
    Rule(
        label="SECRET",
        pattern=re.compile(
            rf"{_START}{_NAME}{_REST}"
            rf"(?:{_SIGN}@?(([\"'`])[^\s\"'`]{{6,512}}+\2)|(?:{_SIGN}|{_SAID})[\"'`]?{_BARE}|{_SPACE}[\"'`]?{_LONG})",
            re.IGNORECASE,
        ),
        accepts=assigned,
        hints=(*_PASSWORD_HINTS, "secret", "token", "credential", "key", "токен", "секрет", "ключ"),
        group=LAST,
    ),
    Rule(
        label="SECRET",
        pattern=re.compile(
            rf"{_START}{_PASSWORDS}{_REST}(?:{_SIGN}|{_SAID})[\"'`]?([0-9]{{4,32}}+)(?!\w)", re.IGNORECASE
        ),
        hints=_PASSWORD_HINTS,
        group=1,
    ),
)
