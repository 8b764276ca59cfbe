"""The contract of a policy as a test class: subclass it, give the fixtures, inherit the checks.

class TestMyPolicy(PolicyConformance):
    @pytest.fixture
    def policy(self):
        return MyPolicy()     # allows anna of acme to `search`, denies her to `delete`, knows nothing else
"""

from __future__ import annotations

import asyncio

from contexture.ports import Policy
from contexture.types import Scope

ANNA = Scope(tenant="acme", user="anna", groups=("sales",))


class PolicyConformance:
    """What a policy promises.

    The fixture `policy` gives one that allows `search` to user `anna` of tenant `acme` and to nobody else, says
    "not here" when she wants to `delete`, and has no opinion on anything else.
    """

    async def test_what_is_allowed_is_allowed(self, policy: Policy) -> None:
        """An action that the policy grants is granted, every time it is asked."""
        decisions = [await policy.decide(ANNA, "search", {"collection": "documents"}) for _ in range(3)]

        assert [decision.allowed for decision in decisions] == [True] * 3

    async def test_a_denial_has_its_reason(self, policy: Policy) -> None:
        """Whoever is denied is told why, in the policy's words."""
        decision = await policy.decide(ANNA, "delete", {})

        assert (decision.allowed, decision.reason) == (False, "not here")

    async def test_silence_is_a_denial(self, policy: Policy) -> None:
        """An action on which the policy has no opinion is denied, and that is said."""
        decision = await policy.decide(ANNA, "no such action", {})

        assert not decision.allowed
        assert decision.reason

    async def test_another_user_or_tenant_is_not_the_same(self, policy: Policy) -> None:
        """What one user may do says nothing about others, whatever characters their names have."""
        users = ("boris", "anna\0", "anna\\", 'anna" || true', "Anna", "anna ", "\\u0061nna", "\ud800")
        others = [Scope(tenant="acme", user=user) for user in users]
        others += [Scope(tenant=tenant, user="anna") for tenant in ("other", "acme\0", "ACME")]
        decisions = [await policy.decide(other, "search", {}) for other in others]

        assert not any(decision.allowed for decision in decisions)

    async def test_questions_at_once_do_not_mix(self, policy: Policy) -> None:
        """Each of many concurrent questions gets the answer it gets alone."""
        actions = ("search", "delete", "search", "other") * 10
        decisions = await asyncio.gather(*(policy.decide(ANNA, action, {}) for action in actions))

        assert [action == "search" for action in actions] == [decision.allowed for decision in decisions]
