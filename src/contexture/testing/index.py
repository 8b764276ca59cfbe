"""The contract of an index as a test class: subclass it, give an `index` fixture, inherit the checks.

The fixture opens an index for the vectors in `VECTORS`. It may live as long as it likes, because
every check writes as a tenant of its own.

class TestMyIndex(IndexConformance):
    @pytest.fixture
    async def index(self):
        return await MyIndex.open(vectors=VECTORS)
"""

from __future__ import annotations

from uuid import uuid4

import pytest

from contexture.ports import Index
from contexture.testing.index_filters import IndexFilterTests
from contexture.testing.index_matrices import IndexMatrixTests
from contexture.testing.index_permissions import IndexPermissionTests
from contexture.testing.index_searches import IndexSearchTests
from contexture.testing.index_tenants import IndexTenantTests
from contexture.testing.index_writes import IndexWriteTests
from contexture.testing.prepared import COLLECTION, VECTORS
from contexture.types import Scope

__all__ = ["VECTORS", "IndexConformance"]


class IndexConformance(
    IndexWriteTests, IndexSearchTests, IndexFilterTests, IndexPermissionTests, IndexTenantTests, IndexMatrixTests
):
    """Everything an index promises."""

    @pytest.fixture
    async def store(self, index: Index, scope: Scope) -> Index:
        """The index with the collection that the checks use."""
        await index.create(scope, COLLECTION)
        return index

    @pytest.fixture
    def scope(self) -> Scope:
        """A user of a tenant that nobody else has."""
        return Scope(tenant=uuid4().hex, user="anna", groups=("sales",))
