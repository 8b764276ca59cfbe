"""Redaction rules for credentials.

Linear-time patterns of detect-secrets, our own patterns for tokens and keys, and values assigned to names, such as
`password = ...`.

Nothing is verified over the network, and entropy is not used. Patterns of detect-secrets that backtrack (JWT, npm,
OpenAI, keyword assignments, private keys) are replaced by our own.
"""

import re
from collections.abc import Iterable, Sequence
from typing import cast

from detect_secrets.plugins.artifactory import ArtifactoryDetector
from detect_secrets.plugins.aws import AWSKeyDetector
from detect_secrets.plugins.azure_storage_key import AzureStorageKeyDetector
from detect_secrets.plugins.base import RegexBasedDetector
from detect_secrets.plugins.discord import DiscordBotTokenDetector
from detect_secrets.plugins.github_token import GitHubTokenDetector
from detect_secrets.plugins.gitlab_token import GitLabTokenDetector
from detect_secrets.plugins.jwt import JwtTokenDetector
from detect_secrets.plugins.mailchimp import MailchimpDetector
from detect_secrets.plugins.pypi_token import PypiTokenDetector
from detect_secrets.plugins.sendgrid import SendGridDetector
from detect_secrets.plugins.square_oauth import SquareOAuthDetector
from detect_secrets.plugins.stripe import StripeDetector
from detect_secrets.plugins.twilio import TwilioKeyDetector

from contexture.adapters.redaction._rules import LAST_GROUP, Rule

_KEY_OWNERS = (
    "api|auth|access|account|client|db|database|encryption|master|priv(?:ate)?|service|secret|session|sign(?:ing)?"
    "|iam|cloud|ibm|cos|hmac|softlayer|sl|cloudant|cl|storage|shared|webhook"
)
# English, Russian, German, French and Spanish.
_PASSWORDS = (
    r"(?:pass(?:word|wd|phrase|code|wort)?|pwd|pw|парол(?:ь|я|ю|е|ем)|кодовое слово|kennwort|zugangscode"
    r"|mots?[ \-]de[ \-]passe|mdp|contrase[nñ]a|clave(?: de acceso)?)"
)
_CREDENTIAL_NAME = (
    rf"(?:{_PASSWORDS}|secret|token|credentials?|токен|секрет(?:ный ключ)?|ключ api"
    rf"|api[ \-]?schl[uü]ssel|geheimnis|cl[eé](?: d'| )api|jeton|secreto"
    rf"|(?:{_KEY_OWNERS})[_\-. ]?(?:access[_\-]?)?(?:api[_\-]?)?(?:key|pass))"
)
# A name starts at a word boundary, after an underscore, or at a capital letter: dbPassword.
_NAME_START = r"(?:(?<![^\W_])|(?<=[a-z])(?-i:(?=[A-Z])))"
# npm's `_authToken=` with the id of a token and no registry in front opens nothing.
_NO_REGISTRY = r"(?!(?:(?<=//:_auth)|(?<=(?<!\S)_auth))token=[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
_NAME_REST = r"(?:_\w{0,24}+)?(?!\w)[\"'\]]{0,2}+"
# What a password is for: `password for the router: ...`, «пароль от роутера: ...».
_PURPOSE = r"(?:[ ](?:for|to|of|от|для|к|на|für|zum|zur|pour|du|de|del|para)(?:[ ][\w'’.\-]{1,24}+){1,3}?)?"
_ASSIGN_SIGN = r"[ \t]{0,8}+(?::=|=>|={1,3}|:{1,2}|!==?)[ \t]{0,8}+"
_ASSIGN_WORD = r"[ \t]{1,8}+(?:(?:is|это|ist|lautet|est|es):?|[-–—])[ \t]{1,8}+"
_BARE_VALUE = r"([^\s\"'`,;<>(){}]{6,512}+)(?!(?<=[$%#])[({])"  # not up to a variable: app-${PASSWORD}
# Words that a password may follow directly; after `pass` come arguments and tests as often.
_FOLLOWED_WORDS = (
    r"(?:pass(?:word|wd|phrase|code|wort)|pwd|pw|парол(?:ь|я|ю|е|ем)|кодовое слово|kennwort|zugangscode"
    r"|mots?[ \-]de[ \-]passe|mdp|contrase[nñ]a|clave(?: de acceso)?)"
)
_FOLLOWING = r"[\"'`*_]{0,3}+(?:[ \t]{1,8}+|[ \t]{0,8}+\|[ \t]{0,8}+)[\"'`*_(«„“]{0,3}+"
_LONG_VALUE = r"([\w\-]{24,128}+)"
_SPACE = r"[ \t]{1,8}+"
_PASSWORD_HINTS = (
    "pass", "pwd", "pw", "парол", "кодовое", "kennwort", "zugangscode", "mdp", "contrase", "clave",
)  # fmt: skip
_CREDENTIAL_HINTS = (
    "secret", "token", "credential", "key", "токен", "секрет", "ключ", "schlüssel", "schlussel", "geheimnis", "clé",
    "cle api", "cle d'api", "jeton",
)  # fmt: skip

_PLACEHOLDER_VALUE = re.compile(
    r"\A[$%{<\[(*]|[$%#]\{|[$%]\(|%[sd](?!\w)|\{\w*\}|\*{3}|\A(?:none|null|true|false|undefined|string|bytes|optional|required|password|secret|token)\Z"
    r"|example|sample|dummy|fake|mock|placeholder|change[_\-]?me|redacted|insert|your|_here|not[_\-]|too[_\-]?short"
    r"|x{5}|\.{3}",
    re.IGNORECASE,
)
_CODE_VALUE = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*[\[(]|[A-Za-z_]+(?:\.[A-Za-z_]+)+\Z|/|https?:")
_RANDOM_LOOKING = re.compile(r"[0-9]|[!#&*+=?@^~|\\]")
_LETTERS = re.compile(r"(?!(.)\1{5})[a-z]{24,}", re.IGNORECASE)


def is_credential_value(value: str) -> bool:
    """Whether a value is a credential: a quoted one that is no placeholder, or a bare one that looks random.

    Looking random means not a number, a word, a path or code, because bare values occur in prose and in programs.
    """
    if _PLACEHOLDER_VALUE.search(value.strip("\"'`")):
        return False
    if value[0] in "\"'`":
        return True
    core = value.strip("!?.:…*_-")
    if _CODE_VALUE.match(value) or value.isdigit():
        return False
    return _RANDOM_LOOKING.search(core) is not None or _LETTERS.fullmatch(core) is not None


# Algorithms, sizes, counts and names of things that are numbered stand behind the word in prose.
_NUMBERED_NAME = re.compile(
    r"(?:(?:sha|md|rc|hs|rs|es|ps|aes|des|base|utf|rfc|iso|nist|din|cve|ipv?|tls|ssl|win(?:dows)?|argon|b?s?crypt|pbkdf|oauth"
    r"|openid|saml|totp|http|web|html|python|postgres\w*|mysql|varchar|n?char|int|float|v|version|ver|step|page|line|field"
    r"|column|row|level|option|section|chapter|table|figure|test|arg|param|var|user|room|item|question|answer|type"
    r"|reset|policy|login|manager|prompt|hash|auth|rule|check|case|file|list|part|group|key|name|id)"
    r"[\-_/.]?\d[\d.,_\-]{0,16}\w?(?:[\-‑][^\W\d]{1,24}){0,3}"
    r"|\d[\d.,]{0,16}[\-‑ ]?(?:bits?|bytes?|[kmg]b|st|nd|rd|th|fa|chars?|characters?|digits?|letters?|words?"
    r"|days?|hours?|months?|years?|times|min|sec|px|x|h|d|symbols?|zeichen|stellig\w*|tage|stunden|caract[eè]res|jours|d[ií]as"
    r"|символ\w*|знак\w*|дн\w*|раз\w?)"
    r"|\d[\d.,]{0,16}[\-‑]\w{1,24}"
    r"|\w{1,24}[\-‑]\d{1,4}"
    r"|[\d.,:/\-]{1,24}[^\W\d]?)\Z",
    re.IGNORECASE,
)
_MIN_FOLLOWING = 5
_LETTER_AND_DIGIT = re.compile(r"(?=.*\d)(?=.*[^\W\d])")
_ADDRESS = re.compile(r"[^@\s]+@[\w\-]+(?:\.[\w\-]+)+\Z")
_SYMBOL_INSIDE = re.compile(r"\w[$!#^*~|%]+\w")


def is_following_password(value: str) -> bool:
    """Whether what follows the word directly is a password: it mixes letters with digits or symbols, as no word does.

    A number of five digits or more is one too; names of algorithms, sizes and numbered things are not.
    """
    core = value.strip("!?.,:;…*_-\"'`)»“”]|")
    if (
        len(core) < _MIN_FOLLOWING
        or value[0] == "&"
        or _PLACEHOLDER_VALUE.search(core)
        or _CODE_VALUE.match(core)
        or _ADDRESS.match(core)
    ):
        return False
    if core.isdigit():
        return True
    if _NUMBERED_NAME.match(core):
        return False
    return _LETTER_AND_DIGIT.match(core) is not None or _SYMBOL_INSIDE.search(core) is not None


ASSIGNMENT_RULES = (
    Rule(  # directly behind the word
        label="SECRET",
        pattern=re.compile(
            rf"{_NAME_START}{_FOLLOWED_WORDS}(?!\w){_FOLLOWING}([^\s\"'`,;<>(){{}}\[\]|]{{5,128}}+)(?![(\[<])",
            re.IGNORECASE,
        ),
        accepts=is_following_password,
        hints=_PASSWORD_HINTS,
        group=1,
    ),
    Rule(
        label="SECRET",
        pattern=re.compile(
            rf"{_NAME_START}{_NO_REGISTRY}{_CREDENTIAL_NAME}{_NAME_REST}"
            rf"(?:{_ASSIGN_SIGN}@?(([\"'`])[^\s\"'`]{{6,512}}+\2)|(?:{_ASSIGN_SIGN}|{_ASSIGN_WORD})[\"'`]?{_BARE_VALUE}|{_SPACE}[\"'`]?{_LONG_VALUE})",
            re.IGNORECASE,
        ),
        accepts=is_credential_value,
        hints=(*_PASSWORD_HINTS, *_CREDENTIAL_HINTS),
        group=LAST_GROUP,
    ),
    Rule(
        label="SECRET",
        pattern=re.compile(
            rf"{_NAME_START}{_PASSWORDS}{_NAME_REST}(?:{_ASSIGN_SIGN}|{_ASSIGN_WORD})[\"'`]?([0-9]{{4,32}}+)(?!\w)",
            re.IGNORECASE,
        ),
        hints=_PASSWORD_HINTS,
        group=1,
    ),
    Rule(  # with a purpose, or with the value on the next line
        label="SECRET",
        pattern=re.compile(
            rf"{_NAME_START}{_PASSWORDS}{_NAME_REST}{_PURPOSE}[ \t]{{0,8}}+"
            rf"(?:[:=](?:[ \t]{{0,8}}+(?:\r?\n[ \t]{{0,8}}+)?)|(?:is|это|ist|lautet|est|es):?[ \t]{{1,8}}+)"
            rf"[\"'`]?{_BARE_VALUE}",
            re.IGNORECASE,
        ),
        accepts=is_credential_value,
        hints=_PASSWORD_HINTS,
        group=1,
    ),
)


SECRET_LABEL = "SECRET"  # noqa: S105 - the label, not a credential

# Each plug-in with its hints: without one of these strings none of its patterns can match, in this case unless a
# pattern takes any.
_DETECT_SECRETS_PLUGINS: tuple[tuple[type[RegexBasedDetector], tuple[str, ...]], ...] = (
    (ArtifactoryDetector, ("AKC", "AP")),
    (AWSKeyDetector, ("A3T", "ABIA", "ACCA", "AKIA", "ASIA", "aws")),
    (AzureStorageKeyDetector, ("AccountKey=",)),
    (DiscordBotTokenDetector, (".",)),
    (GitHubTokenDetector, ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    (
        GitLabTokenDetector,
        (
            *("glpat-", "gldt-", "glft-", "glsoat-", "glrt-", "glcbt-", "glimt-", "glptt-", "glagent-", "gloas-"),
            "GR1348941",
        ),
    ),
    (MailchimpDetector, ("-us",)),
    (PypiTokenDetector, ("pypi-",)),
    (SendGridDetector, ("SG.",)),
    (SquareOAuthDetector, ("sq0csp-",)),
    (StripeDetector, ("k_live_",)),
    (TwilioKeyDetector, ("AC", "SK")),
)


_DISCORD_MIDDLE = re.compile(r"\.[a-zA-Z\d_-]{6}\.")


def valid_jwt(token: str) -> bool:
    """Whether header and payload are base64 of JSON."""
    return JwtTokenDetector.is_formally_valid(token.rstrip("."))


def random_token(value: str) -> bool:
    """Whether the value of a cookie is a token: it has digits besides letters, and is no placeholder and no code."""
    plain = value.replace("%", "")
    return (
        _RANDOM_LOOKING.search(plain) is not None
        and not plain.isdigit()
        and _PLACEHOLDER_VALUE.search(plain) is None
        and _CODE_VALUE.match(plain) is None
    )


def _detect_secrets_rules() -> Iterable[Rule]:
    for plugin, hints in _DETECT_SECRETS_PLUGINS:
        for pattern in cast("Sequence[re.Pattern[str]]", plugin.denylist):
            quick = _DISCORD_MIDDLE if plugin is DiscordBotTokenDetector else None
            yield Rule(label=SECRET_LABEL, pattern=pattern, hints=_fold_hints(pattern, hints), quick=quick)


def _own_rule(pattern: str, *hints: str, group: int = 0) -> Rule:
    compiled = re.compile(pattern)
    return Rule(label=SECRET_LABEL, pattern=compiled, hints=_fold_hints(compiled, hints), group=group)


def _fold_hints(pattern: re.Pattern[str], hints: Sequence[str]) -> tuple[str, ...]:
    """The hints of a pattern, in lower case if it takes any case."""
    return tuple(map(str.lower, hints)) if pattern.flags & re.IGNORECASE else tuple(hints)


OWN_RULES = (
    _own_rule(
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]{1,16384}+(?:-----END [A-Z0-9 ]{0,48}-----)?)?",
        "PRIVATE KEY",
    ),
    _own_rule(
        r"PuTTY-User-Key-File-\d[^\0]{1,16384}?Private-(?:MAC|Hash): ?\w{1,128}", "PuTTY-User-Key-File-"
    ),
    _own_rule(r"(?i)Private-Lines: ?\d{1,4}\s{1,4}((?>(?:[A-Za-z0-9+/=]{16,128}+\s{0,4}+){1,400}))",
         "Private-Lines:", group=1),
    Rule(
        label=SECRET_LABEL,
        pattern=re.compile(r"(?<![\w.\-])eyJ[\w\-=]{1,4096}+\.[\w\-=]{1,16384}+(?:\.[\w\-=]{0,4096}+)?", re.ASCII),
        accepts=valid_jwt,
        hints=("eyJ",),
    ),
    _own_rule(r"://[^\s:/?#\[\]@!$&'()*+,;=\"]{0,128}+:([^\s:/?#\[\]@\"'<>]{1,256}+)@", "://", group=1),
    _own_rule(r"(?i)\b(?:authorization|proxy-authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
         r"(?:bearer|basic|token|digest)\s{1,3}([\w.~+/=\-]{8,4096}+)",
         "authorization", group=1),
    _own_rule(r"(?i)\bbearer\s{1,3}([\w.~+/\-]{20,4096}+={0,2})", "bearer", group=1),
    _own_rule(r"//[^\s/]{1,256}+/(?:[^\s:]{1,256}+/)?:_authToken=\s{0,3}(npm_\w{1,128}|[A-Fa-f0-9-]{36})",
         ":_authToken=", group=1),
    _own_rule(r"(?<!\w)npm_[A-Za-z0-9]{36}(?!\w)", "npm_"),
    _own_rule(r"(?<![\w-])sk-[A-Za-z0-9_-]{0,128}?T3BlbkFJ[A-Za-z0-9_-]{20,128}+", "T3BlbkFJ"),
    _own_rule(r"(?<!\w)ctx_[0-9a-f]{12}_[A-Za-z0-9_-]{16,64}+", "ctx_"),
    _own_rule(r"(?<![\w-])sk-(?:proj|svcacct|admin|service|None)-[A-Za-z0-9_-]{6,512}+",
         "sk-proj-", "sk-svcacct-", "sk-admin-", "sk-service-", "sk-None-"),
    _own_rule(r"(?<![\w-])sk-(?=[A-Za-z]{0,64}\d)[A-Za-z0-9]{32,128}(?![\w-])", "sk-"),
    _own_rule(r"(?<!\w)(?:gsk|r8|ntn|fw|sb_secret)_(?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{20,256}+",
         "gsk_", "r8_", "ntn_", "fw_", "sb_secret_"),
    _own_rule(r"(?<![\w-])(?:xai|pplx|nvapi|tvly)-(?=[A-Za-z_-]{0,64}\d)[A-Za-z0-9_-]{20,256}+",
         "xai-", "pplx-", "nvapi-", "tvly-"),
    _own_rule(r"(?<!\w)sbp_(?:v\d_)?[0-9a-fA-F]{20,128}+", "sbp_"),
    _own_rule(r"(?<!\w)lsv2_(?:pt|sk)_[0-9a-f]{20,64}(?:_[0-9a-f]{6,32})?", "lsv2_"),
    _own_rule(r"(?<![\w-])sk-ant-[A-Za-z0-9_-]{24,160}+", "sk-ant-"),
    _own_rule(r"(?<![\w-])sk-or-v1-[0-9a-f]{64}(?!\w)", "sk-or-v1-"),
    _own_rule(r"(?<!\w)\d{8,10}:AA[0-9A-Za-z_-]{33}(?![\w-])", ":AA"),
    _own_rule(r"(?<!\w)(?:github_pat_\w{60,90}|gh[pousr]_[A-Za-z0-9]{36,255})",
         "github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
    _own_rule(r"(?i)xox[abeoprs](?:\.xox[bp])?-[\w-]{10,250}+", "xox"),
    _own_rule(r"(?i)\bxapp-\d-[\w-]{10,250}+", "xapp-"),
    _own_rule(r"(?i)https://hooks\.slack\.com/(?:services|workflows)/[\w/]{20,200}+", "hooks.slack.com"),
    _own_rule(
        r"(?i)https://(?:\w{1,20}\.)?discord(?:app)?\.com/api/webhooks/\d{15,22}/[\w-]{40,120}+", "/api/webhooks/"
    ),
    _own_rule(r"(?i)https://\w{1,60}\.webhook\.office\.com/[\w/@-]{40,300}+", "webhook.office.com"),
    _own_rule(r"(?<!\w)(?:sk|rk)_(?:live|test)_[0-9a-zA-Z]{16,128}+", "k_live_", "k_test_"),
    _own_rule(r"(?<!\w)whsec_[A-Za-z0-9+/=]{24,128}+", "whsec_"),
    _own_rule(r"(?<![\w-])AIza[\w-]{35}(?![\w-])", "AIza"),
    _own_rule(r"(?<![\w-])GOCSPX-[\w-]{28}(?![\w-])", "GOCSPX-"),
    _own_rule(r"(?<![\w.])ya29\.[\w-]{20,1024}+", "ya29."),
    _own_rule(r"(?<!\w)(?:EAAA|sq0atp-|sq0idp-)[\w-]{22,64}+", "EAAA", "sq0"),
    _own_rule(r"(?<!\w)hf_[A-Za-z0-9]{30,40}(?!\w)", "hf_"),
    _own_rule(r"(?<!\w)(?:dop|doo|dor)_v1_[0-9a-f]{64}(?!\w)", "_v1_"),
    _own_rule(r"(?<!\w)(?:shpat|shpca|shppa|shpss)_[0-9a-fA-F]{32}(?!\w)", "shp"),
    _own_rule(r"(?<!\w)(?:hvs|hvb)\.[\w-]{24,256}+", "hvs.", "hvb."),
    _own_rule(r"(?<!\w)dapi[0-9a-f]{32}(?!\w)", "dapi"),
    _own_rule(r"(?<!\w)NRAK-[A-Z0-9]{27}(?!\w)", "NRAK-"),
    _own_rule(r"(?<!\w)(?:lin_api_|glsa_|glc_|dckr_pat_|rubygems_|PMAK-|ATATT3|ATCTT3|key-)[\w-]{20,256}+",
         "lin_api_", "glsa_", "glc_", "dckr_pat_", "rubygems_", "PMAK-", "ATATT3", "ATCTT3", "key-"),
    _own_rule(r"(?<!\w)AGE-SECRET-KEY-1[0-9A-Z]{58}", "AGE-SECRET-KEY-1"),
    _own_rule(r"(?i)(?:[?&;]|\b)(?:sig|x-amz-signature|x-goog-signature)=([\w%+/-]{32,512}+={0,2})",
         "sig=", "signature=", group=1),
    Rule(
        label=SECRET_LABEL,
        pattern=re.compile(
            r"(?:sess(?:ion)?[_\-]?(?:id|token|key)?|(?<![a-z])sid|(?:csrf|xsrf|remember)[_\-]?(?:middleware)?token)"
            r"\"?=\"?([\w%+/.~:\-]{16,4096}+={0,2})", re.IGNORECASE),
        accepts=random_token,
        hints=(
            "sess=", 'sess"', "session", "sessid", "sesstoken", "sesskey", "sess_", "sess-", "sid=", 'sid"', "csrf",
            "xsrf", "remember_", "remember-", "remembertoken", "remembermiddleware",
        ),
        group=1,
    ),
    _own_rule(r"(?i)\bcookie[\"']?[ \t]{0,4}:[ \t]{0,4}[\"']?((?:[\w.\-]{1,64}+=[^\r\n\"';]{0,256}+;[ ]?){0,8}"
         r"[\w.\-]{1,64}+=(?=[^\r\n\"';]{0,64}\d)[\w%+/.~|:\-]{16,4096}+[^\r\n\"']{0,4096}+)", "cookie", group=1),
    _own_rule(r"(?i)\bSharedAccessKey=([A-Za-z0-9+/]{40,100}+={0,2})", "SharedAccessKey=", group=1),
    _own_rule(r"(?<!\w)[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}(?!\w)", "8Q~"),
)  # fmt: skip

CREDENTIAL_RULES: tuple[Rule, ...] = (*_detect_secrets_rules(), *OWN_RULES, *ASSIGNMENT_RULES)
