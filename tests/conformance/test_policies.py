"""The policies that ship keep the contract of a policy."""

from __future__ import annotations

import pytest

pytest.importorskip("contexture.adapters.policy.rego", exc_type=ImportError)

from contexture.adapters.policy.rego import RegoPolicy
from support.policy_conformance import PolicyConformance

pytestmark = pytest.mark.needs("libatomic1")

RULES = """package contexture
import rego.v1

allow if {
    input.tenant == "acme"
    input.user == "anna"
    input.action == "search"
}

reason := "not here" if input.action == "delete"
"""


class TestRego(PolicyConformance):
    """Rego in process."""

    @pytest.fixture
    def policy(self, tmp_path):
        """The rules of the contract, in a folder."""
        (tmp_path / "rules.rego").write_text(RULES)
        return RegoPolicy(tmp_path, timeout=30)
