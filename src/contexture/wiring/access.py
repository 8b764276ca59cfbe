"""Policies and secrets from settings."""

from __future__ import annotations

import structlog

from contexture.adapters.policy.open import DenyingPolicy, OpenPolicy
from contexture.adapters.secrets.combined import CombinedSecrets
from contexture.adapters.secrets.environment import EnvironmentSecrets
from contexture.adapters.secrets.file import FileSecrets
from contexture.config import Settings, secret_variables
from contexture.errors import InvalidRequest, MissingLibrary
from contexture.ports import Policy, Secrets


def policy(settings: Settings) -> Policy:
    """Who may do what; everything inside a scope when neither a folder of policies nor an OPA is named.

    Policies in a folder deny everything while the system library that evaluates them is missing.
    """
    if settings.policy_url and settings.policy_folder is not None:
        raise InvalidRequest("name one policy: CONTEXTURE_POLICY_FOLDER or CONTEXTURE_POLICY_URL")
    if settings.policy_url:
        from contexture.adapters.policy.opa import OpaPolicy

        return OpaPolicy(settings.policy_url, timeout=settings.policy_timeout_seconds)
    if settings.policy_folder is None:
        return OpenPolicy()
    try:
        from contexture.adapters.policy.rego import RegoPolicy
    except MissingLibrary as missing:
        structlog.get_logger().error("the policy cannot be loaded, and everything is denied", reason=str(missing))
        return DenyingPolicy(str(missing))

    return RegoPolicy(settings.policy_folder, timeout=settings.policy_timeout_seconds)


async def close_policy(chosen: Policy) -> None:
    """Release what a policy holds, where it holds anything."""
    close = getattr(chosen, "close", None)
    if close is not None:
        await close()


def secrets(settings: Settings) -> Secrets:
    """The values that must never be shown."""
    sources: list[Secrets] = [EnvironmentSecrets(secret_variables(settings), prefix=settings.secrets_prefix)]
    if settings.secrets_file is not None:
        sources.append(FileSecrets(settings.secrets_file))
    if settings.secrets_age_file is not None:
        sources.append(_age(settings))
    if settings.secrets_vault_url:
        from contexture.adapters.secrets.vault import VaultSecrets

        sources.append(VaultSecrets(settings.secrets_vault_url, token=settings.secrets_vault_token))
    return CombinedSecrets(sources)


def _age(settings: Settings) -> Secrets:
    if settings.secrets_age_file is None or settings.secrets_age_identity is None:
        raise InvalidRequest("CONTEXTURE_SECRETS_AGE_FILE needs CONTEXTURE_SECRETS_AGE_IDENTITY to open it")
    from contexture.adapters.secrets.age import AgeSecrets

    return AgeSecrets(settings.secrets_age_file, identity=settings.secrets_age_identity)
