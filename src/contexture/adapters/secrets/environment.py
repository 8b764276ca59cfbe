"""Secrets that stand in environment variables with a prefix."""

from __future__ import annotations

from collections.abc import Mapping


class EnvironmentSecrets:
    """The variables of `environment` that start with `prefix`, by their names without it.

    EnvironmentSecrets({"SECRET_DB": "hunter2"}, prefix="SECRET_").known()     # {'DB': 'hunter2'}
    """

    def __init__(self, environment: Mapping[str, str], *, prefix: str) -> None:
        self._known = {
            name.removeprefix(prefix): value
            for name, value in environment.items()
            if prefix and value and name.startswith(prefix) and name != prefix
        }

    def known(self) -> Mapping[str, str]:
        """Every key with its value."""
        return dict(self._known)
