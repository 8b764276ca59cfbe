"""Credentials known by the name they are assigned to: `password = ...`, `api_key: ...`, `пароль: ...`."""

from __future__ import annotations

import re
from collections.abc import Callable

from contexture.adapters.redaction.rules import Rule

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
_HINTS = ("pass", "pwd", "pw", "secret", "token", "credential", "key", "contrase", "парол", "токен", "секрет", "ключ")

_STAND_IN = re.compile(
    r"[$%{<\[(*]|\A(?:none|null|true|false|undefined|string|bytes|optional|required|password|secret|token)\Z"
    r"|example|sample|dummy|fake|mock|placeholder|change[_\-]?me|redacted|insert|your|_here|not[_\-]|too[_\-]?short"
    r"|x{5}|\.{3}",
    re.IGNORECASE,
)
_CODE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[\[(]|[A-Za-z_]+(?:\.[A-Za-z_]+)+\Z|/|https?:")
_DRAWN = re.compile(r"[0-9]|[!#&*+=?@^~|\\]")
_LETTERS = re.compile(r"(?!(.)\1{5})[a-z]{24,}", re.IGNORECASE)


def quoted_secret(value: str) -> bool:
    """Whether a value in quotes is a credential and no stand-in for one."""
    return _STAND_IN.search(value) is None


def drawn(value: str) -> bool:
    """Whether a bare value looks drawn rather than written: not a number, a word, a path or code."""
    core = value.strip("!?.:…*_-")
    if _STAND_IN.search(value) or _CODE.match(value) or value.isdigit():
        return False
    return _DRAWN.search(core) is not None or _LETTERS.fullmatch(core) is not None


def _assignment(pattern: str, accepts: Callable[[str], bool], group: int = 1) -> Rule:
    return Rule(label="SECRET", pattern=re.compile(pattern, re.IGNORECASE), accepts=accepts, hints=_HINTS, group=group)


ASSIGNMENTS = (
    _assignment(rf"{_START}{_NAME}{_REST}{_SIGN}@?([\"'`])([^\s\"'`]{{6,512}}+)\1", quoted_secret, 2),
    _assignment(rf"{_START}{_NAME}{_REST}{_SIGN}{_BARE}", drawn),
    _assignment(rf"{_START}{_NAME}{_REST}{_SAID}[\"'`]?{_BARE}", drawn),
    _assignment(rf"{_START}{_NAME}{_REST}[ \t]{{1,8}}+[\"'`]?([\w\-]{{24,128}}+)", drawn),
    _assignment(rf"{_START}{_PASSWORDS}{_REST}(?:{_SIGN}|{_SAID})[\"'`]?([0-9]{{4,32}}+)(?!\w)", str.isdigit),
)
