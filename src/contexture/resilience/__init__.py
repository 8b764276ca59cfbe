"""What keeps a build going when a service does not: health, breaker, retries, deadlines."""
