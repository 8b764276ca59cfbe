"""The steps of a build; only `candidates.collect_candidates` and `truncation.summarize` do I/O."""
