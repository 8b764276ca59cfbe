"""The contract of a block store as a test class: subclass it, give a `store` fixture, inherit the checks.

The store may live as long as it likes, because every check writes as a tenant of its own. It is made with
`contexture.blocks.links.extract_links`.

class TestMyBlocks(BlockStoreConformance):
    @pytest.fixture
    def store(self):
        return MyBlocks(...)
"""

from __future__ import annotations

from uuid import uuid4

import pytest

from contexture.testing.blocks_facts import BlockFactsTests
from contexture.testing.blocks_generated import GeneratedTreeTests
from contexture.testing.blocks_links import BlockLinkTests
from contexture.testing.blocks_removal import BlockRemovalTests
from contexture.testing.blocks_tree import BlockTreeTests
from contexture.types import Scope


class BlockStoreConformance(BlockTreeTests, BlockLinkTests, BlockRemovalTests, BlockFactsTests, GeneratedTreeTests):
    """Everything a block store promises."""

    @pytest.fixture
    def anna(self) -> Scope:
        """A user of a tenant that nobody else has."""
        return Scope(tenant=uuid4().hex, user="anna", groups=("sales",))
