"""Shared fixtures; the network is off for every test but loopback."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

LOOPBACK = ("127.", "::1", "localhost")


@pytest.fixture(autouse=True)
def no_outbound_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that reaches a host beyond loopback fails at once, and says which."""
    connect = socket.socket.connect

    def loopback_only(self: socket.socket, address: object) -> None:
        host = address[0] if isinstance(address, tuple) else str(address)
        if self.family != socket.AF_UNIX and not str(host).startswith(LOOPBACK):
            pytest.fail(f"a test tried to reach {host!r}")
        connect(self, address)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(socket.socket, "connect", loopback_only)


@pytest.fixture(scope="session")
def eval_data() -> Path:
    """The folder of public evaluation sets; tests that need it skip where it is not given."""
    folder = os.environ.get("CONTEXTURE_EVAL_DATA", "")  # noqa: TID251 - tests are told where the data is
    if not folder or not Path(folder).is_dir():
        pytest.skip("set CONTEXTURE_EVAL_DATA to the folder of evaluation sets to run this test")
    return Path(folder)
