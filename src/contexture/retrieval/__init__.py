"""Hybrid search over an Index: preparation at ingestion, query analysis, fusion, neighbours, caching."""
