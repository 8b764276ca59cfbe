"""Credentials: the patterns of detect-secrets that stay linear on hostile text, and rules of our own for the rest.

Nothing is verified over the network and nothing is judged by entropy. Three groups of detect-secrets patterns are
replaced rather than used: those for JWT, npm and OpenAI rescan the rest of a line from every start, the assignments
(IBM, Cloudant, SoftLayer, keywords) backtrack over runs of spaces, and the one for private keys finds the header only.
"""

from __future__ import annotations

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

from contexture.adapters.redaction.assignments import ASSIGNMENTS
from contexture.adapters.redaction.rules import Rule

SECRET = "SECRET"  # noqa: S105 - the label, not a credential

# Each plug-in with pieces of text without which none of its patterns can match.
_PLUGINS: tuple[tuple[type[RegexBasedDetector], tuple[str, ...]], ...] = (
    (ArtifactoryDetector, ("AKC", "AP")),
    (AWSKeyDetector, ("A3T", "ABIA", "ACCA", "AKIA", "ASIA", "aws")),
    (AzureStorageKeyDetector, ("AccountKey=",)),
    (DiscordBotTokenDetector, (".",)),
    (GitHubTokenDetector, ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    (GitLabTokenDetector, ("gl", "GR1348941")),
    (MailchimpDetector, ("-us",)),
    (PypiTokenDetector, ("pypi-",)),
    (SendGridDetector, ("SG.",)),
    (SquareOAuthDetector, ("sq0csp-",)),
    (StripeDetector, ("k_live_",)),
    (TwilioKeyDetector, ("AC", "SK")),
)


def valid_jwt(token: str) -> bool:
    """Whether header and payload are base64 of JSON."""
    return JwtTokenDetector.is_formally_valid(token.rstrip("."))


def _borrowed() -> Iterable[Rule]:
    for plugin, hints in _PLUGINS:
        for pattern in cast("Sequence[re.Pattern[str]]", plugin.denylist):
            yield Rule(label=SECRET, pattern=pattern, hints=tuple(map(str.lower, hints)))


def _own(pattern: str, *hints: str, group: int = 0) -> Rule:
    return Rule(label=SECRET, pattern=re.compile(pattern), hints=tuple(map(str.lower, hints)), group=group)


OWN = (
    _own(
        r"-----BEGIN (?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:[^-]{1,16384}+(?:-----END [A-Z0-9 ]{0,48}-----)?)?",
        "PRIVATE KEY",
    ),
    _own(r"PuTTY-User-Key-File-\d[^\0]{1,8192}?Private-MAC: ?\w{1,128}", "PuTTY-User-Key-File-"),
    Rule(
        label=SECRET,
        pattern=re.compile(r"(?<![\w.\-])eyJ[\w\-=]{1,4096}+\.[\w\-=]{1,16384}+(?:\.[\w\-=]{0,4096}+)?", re.ASCII),
        accepts=valid_jwt,
        hints=("eyj",),
    ),
    _own(r"://[^\s:/?#\[\]@!$&'()*+,;=\"]{0,128}+:([^\s:/?#\[\]@\"'<>]{1,256}+)@", "://", group=1),
    _own(r"(?i)\b(?:authorization|proxy-authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?"
         r"(?:bearer|basic|token|digest)\s{1,3}([\w.~+/=\-]{8,4096}+)",
         "authorization", group=1),
    _own(r"(?i)\bbearer\s{1,3}([\w.~+/\-]{20,4096}+={0,2})", "bearer ", group=1),
    _own(r"//[^\s/]{1,256}+/(?:[^\s:]{1,256}+/)?:_authToken=\s{0,3}(npm_\w{1,128}|[A-Fa-f0-9-]{36})",
         ":_authToken=", group=1),
    _own(r"(?<!\w)npm_[A-Za-z0-9]{36}(?!\w)", "npm_"),
    _own(r"(?<![\w-])sk-[A-Za-z0-9_-]{0,128}?T3BlbkFJ[A-Za-z0-9_-]{20,128}+", "T3BlbkFJ"),
    _own(r"(?<![\w-])sk-ant-[A-Za-z0-9_-]{24,160}+", "sk-ant-"),
    _own(r"(?<![\w-])sk-or-v1-[0-9a-f]{64}(?!\w)", "sk-or-v1-"),
    _own(r"(?<!\w)\d{8,10}:AA[0-9A-Za-z_-]{33}(?![\w-])", ":AA"),
    _own(r"(?<!\w)(?:github_pat_\w{60,90}|gh[pousr]_[A-Za-z0-9]{36,255})", "github_pat_", "gh"),
    _own(r"(?i)xox[abeoprs](?:\.xox[bp])?-[\w-]{10,250}+", "xox"),
    _own(r"(?i)\bxapp-\d-[\w-]{10,250}+", "xapp-"),
    _own(r"(?i)https://hooks\.slack\.com/(?:services|workflows)/[\w/]{20,200}+", "hooks.slack.com"),
    _own(r"(?i)https://(?:\w{1,20}\.)?discord(?:app)?\.com/api/webhooks/\d{15,22}/[\w-]{40,120}+", "/api/webhooks/"),
    _own(r"(?i)https://\w{1,60}\.webhook\.office\.com/[\w/@-]{40,300}+", "webhook.office.com"),
    _own(r"(?<!\w)(?:sk|rk)_(?:live|test)_[0-9a-zA-Z]{16,128}+", "k_live_", "k_test_"),
    _own(r"(?<!\w)whsec_[A-Za-z0-9+/=]{24,128}+", "whsec_"),
    _own(r"(?<![\w-])AIza[\w-]{35}(?![\w-])", "AIza"),
    _own(r"(?<![\w-])GOCSPX-[\w-]{28}(?![\w-])", "GOCSPX-"),
    _own(r"(?<![\w.])ya29\.[\w-]{20,1024}+", "ya29."),
    _own(r"(?<!\w)(?:EAAA|sq0atp-|sq0idp-)[\w-]{22,64}+", "EAAA", "sq0"),
    _own(r"(?<!\w)hf_[A-Za-z0-9]{30,40}(?!\w)", "hf_"),
    _own(r"(?<!\w)(?:dop|doo|dor)_v1_[0-9a-f]{64}(?!\w)", "_v1_"),
    _own(r"(?<!\w)(?:shpat|shpca|shppa|shpss)_[0-9a-fA-F]{32}(?!\w)", "shp"),
    _own(r"(?<!\w)(?:hvs|hvb)\.[\w-]{24,256}+", "hvs.", "hvb."),
    _own(r"(?<!\w)dapi[0-9a-f]{32}(?!\w)", "dapi"),
    _own(r"(?<!\w)NRAK-[A-Z0-9]{27}(?!\w)", "NRAK-"),
    _own(r"(?<!\w)(?:lin_api_|glsa_|glc_|dckr_pat_|rubygems_|PMAK-|ATATT3|ATCTT3|key-)[\w-]{20,256}+",
         "lin_api_", "glsa_", "glc_", "dckr_pat_", "rubygems_", "PMAK-", "ATATT3", "ATCTT3", "key-"),
    _own(r"(?<!\w)AGE-SECRET-KEY-1[0-9A-Z]{58}", "AGE-SECRET-KEY-1"),
    _own(r"(?i)(?:[?&;]|\b)(?:sig|x-amz-signature|x-goog-signature)=([\w%+/-]{32,512}+={0,2})",
         "sig=", "signature=", group=1),
    _own(r"(?i)\bSharedAccessKey=([A-Za-z0-9+/]{40,100}+={0,2})", "SharedAccessKey=", group=1),
    _own(r"(?<!\w)[A-Za-z0-9_~.]{3}8Q~[A-Za-z0-9_~.-]{31,34}(?!\w)", "8Q~"),
)  # fmt: skip

SECRETS: tuple[Rule, ...] = (*_borrowed(), *OWN, *ASSIGNMENTS)
