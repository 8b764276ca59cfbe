"""Policies and secrets from settings."""

from __future__ import annotations

from contexture.adapters.policy.open import OpenPolicy
from contexture.adapters.secrets.combined import CombinedSecrets
from contexture.adapters.secrets.environment import EnvironmentSecrets
from contexture.adapters.secrets.file import FileSecrets
from contexture.config import Settings, secret_variables
from contexture.ports import Policy, Secrets


def policy(settings: Settings) -> Policy:
    """Who may do what; everything inside a scope when no folder of policies is named."""
    if settings.policy_folder is None:
        return OpenPolicy()
    from contexture.adapters.policy.rego import RegoPolicy

    return RegoPolicy(settings.policy_folder, timeout=settings.policy_timeout_seconds)


def secrets(settings: Settings) -> Secrets:
    """The values that must never be shown."""
    sources: list[Secrets] = [EnvironmentSecrets(secret_variables(settings), prefix=settings.secrets_prefix)]
    if settings.secrets_file is not None:
        sources.append(FileSecrets(settings.secrets_file))
    return CombinedSecrets(sources)
