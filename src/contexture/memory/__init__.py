"""Memory service: stores memories of conversations, recalls them by hybrid search, and expires them."""
