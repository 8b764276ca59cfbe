"""Cache of entities and relations extracted from records, in PostgreSQL."""

from contexture.adapters.graph.sqlite import StoredGraphCache
from contexture.adapters.postgres.pool import PostgresPool
from contexture.adapters.postgres.tables import PostgresTables

MIGRATIONS = (
    """
    CREATE TABLE records (
        tenant TEXT NOT NULL, id TEXT NOT NULL, version TEXT NOT NULL, body BYTEA NOT NULL, PRIMARY KEY (tenant, id)
    );
    CREATE TABLE names (tenant TEXT NOT NULL, key TEXT NOT NULL, id TEXT NOT NULL);
    CREATE INDEX names_key ON names USING hash (key);
    CREATE INDEX names_of ON names (tenant, id);
    """,
)


class PostgresGraphCache(StoredGraphCache):
    """Extracted entities and relations in a PostgreSQL database that several processes share."""

    def __init__(self, pool: PostgresPool) -> None:
        super().__init__(PostgresTables(pool, "graph", MIGRATIONS))
