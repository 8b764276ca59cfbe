"""Sources by their domains: one spelling each, and a domain stands for its subdomains."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from contexture.retrieval.prepare import mended

_EDGES = re.compile(r"^(?:www\.|[\s.])+|[\s.]+$")
_LEAST_PARTS = 2  # a name such as `org` alone is nobody's domain
_BLANKS = re.compile(r"[\x00-\x20]+")  # browsers read a scheme through them
_SCHEME = re.compile(r"([a-z][a-z0-9+-]*):(?!\d)", re.IGNORECASE)
_WEB = ("http", "https")


def domain_of(source: str) -> str:
    """The domain in a domain, a host or an address, in lower case and without `www.`; another name as it is."""
    given = mended(source).strip().lower()
    host = _host(given) if "//" in given else given.split("/", 1)[0]
    return _EDGES.sub("", host.partition(":")[0])


def web_address(url: str) -> str:
    """The address without blanks around it, or nothing where following it would not lead into the web.

    Scripts and data have addresses too (`javascript:`, `data:`), and whoever shows an answer makes links of them.
    """
    scheme = _SCHEME.match(_BLANKS.sub("", url))
    return url.strip() if scheme is None or scheme[1].lower() in _WEB else ""


def domains(source: str) -> tuple[str, ...]:
    """A domain and every domain it is part of, but for the last name alone."""
    parts = source.split(".")
    return tuple(".".join(parts[at:]) for at in range(max(1, len(parts) - _LEAST_PARTS + 1)))


def _host(address: str) -> str:
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""
