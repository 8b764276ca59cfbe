"""Memories: what is kept of a conversation, found again by meaning, and forgotten in time."""
