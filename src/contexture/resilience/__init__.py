"""Keeps builds working when a service fails: health state, circuit breaker, retries, deadlines."""
