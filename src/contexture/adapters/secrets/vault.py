"""Secrets from a HashiCorp Vault KV store, version 2."""

from collections.abc import Mapping

import httpx
import msgspec

from contexture.errors import InvalidRequest, SourceTimeout, SourceUnavailable

_OK = 200
_MAX_ANSWER_BYTES = 2**20


class _SecretVersion(msgspec.Struct):
    """One version of a secret: its values by key."""

    data: dict[str, object]


class _VaultAnswer(msgspec.Struct):
    """Answer of Vault."""

    data: _SecretVersion


class VaultSecrets:
    """The values of one secret, read once; values that are not strings are left out.

    `url` is the full URL of the secret, with `data` after the mount. The constructor raises `SourceError` if Vault
    refuses, is sealed or does not answer, because without its secrets nothing could be masked.

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
            raise InvalidRequest(f"the Vault address {url!r} or its token is invalid") from failure
        except httpx.HTTPError as failure:
            raise SourceUnavailable(f"Vault cannot be reached: {type(failure).__name__}") from failure
        self._known = _parse_values(answer)

    def known_values(self) -> Mapping[str, str]:
        """Values by key."""
        return dict(self._known)


def _parse_values(answer: httpx.Response) -> dict[str, str]:
    if answer.status_code != _OK:
        raise SourceUnavailable(
            f"Vault answered with {answer.status_code}; check the token, the path and whether Vault is unsealed"
        )
    try:
        found = msgspec.json.decode(answer.content[:_MAX_ANSWER_BYTES], type=_VaultAnswer).data.data
    except msgspec.DecodeError:
        # The message of the cause could contain a part of a secret.
        raise SourceUnavailable("Vault's answer is not a secret of KV version 2; is `data` in the path?") from None
    return {key: value for key, value in found.items() if isinstance(value, str) and value}
