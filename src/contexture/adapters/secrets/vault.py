"""Secrets that HashiCorp Vault keeps in a KV store of version 2."""

from __future__ import annotations

from collections.abc import Mapping

import httpx
import msgspec

from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable

_OK = 200
_LARGEST = 2**20  # bytes of an answer


class _Version(msgspec.Struct):
    """One version of a secret: its values by key."""

    data: dict[str, object]


class _Answer(msgspec.Struct):
    """What Vault answers."""

    data: _Version


class VaultSecrets:
    """The values of one secret, read once; a value that is not a text is left out.

    `url` is the secret's whole address, with `data` behind the mount. A Vault that refuses, is sealed or does not
    answer is an error at once: without its secrets nothing could be masked.

    VaultSecrets("https://vault:8200/v1/secret/data/contexture", token="hvs.…")
    """

    def __init__(self, url: str, *, token: str, timeout: float = 10.0) -> None:
        try:
            answer = httpx.get(
                url,
                headers={"X-Vault-Token": token, "X-Vault-Request": "true"},
                timeout=timeout,
                follow_redirects=False,
                trust_env=False,
            )
        except httpx.TimeoutException as failure:
            raise SourceTimeout(f"Vault did not answer within {timeout:g} seconds") from failure
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeEncodeError) as failure:
            raise InvalidRequest(f"Vault cannot be asked at {url!r} with this token") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"Vault cannot be asked: {type(failure).__name__}") from failure
        self._known = _values(answer)

    def known(self) -> Mapping[str, str]:
        """Every key with its value."""
        return dict(self._known)


def _values(answer: httpx.Response) -> dict[str, str]:
    if answer.status_code != _OK:
        raise SourceUnavailable(f"Vault answers {answer.status_code}; look at the token, the path and the seal")
    try:
        found = msgspec.json.decode(answer.content[:_LARGEST], type=_Answer).data.data
    except msgspec.DecodeError:
        # Its message could show a piece of a secret.
        raise SourceUnavailable("Vault's answer is not a secret of KV version 2; is `data` in the path?") from None
    return {key: value for key, value in found.items() if isinstance(value, str) and value}
