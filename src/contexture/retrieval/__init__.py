"""Hybrid search over an `Index`: preparing records, encoding questions, score fusion, neighbour lift, caching."""
