"""Notes of other programs as blocks of a workspace."""
