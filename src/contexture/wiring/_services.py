"""From settings: policy, secrets, memory service, message bus and tracing spans."""

import structlog

from contexture.adapters.bus import registry
from contexture.adapters.bus.registry import BusOptions
from contexture.adapters.memory_client import RemoteMemory
from contexture.adapters.policy.open import DenyingPolicy, OpenPolicy
from contexture.adapters.secrets.local import CombinedSecrets, EnvironmentSecrets, FileSecrets
from contexture.adapters.spans.tracing import NoopTracer, TracedModel, TracedToolModel
from contexture.config import Settings, secret_variables
from contexture.errors import InvalidRequest, MissingLibrary
from contexture.memory.guard import GuardedMemory, MemoryGuard
from contexture.memory.service import LocalMemory
from contexture.ports import Bus, ChatModel, Clock, Health, Index, Policy, Secrets, ToolCallingModel, Tracer
from contexture.resilience import CircuitBreaker, HealthMonitor, HealthOptions, RetryPolicy
from contexture.retrieval.prepare import Preparer
from contexture.retrieval.search import HybridSearch


def policy(settings: Settings) -> Policy:
    """Return the policy; without a policy folder or an OPA server, everything inside a scope is allowed.

    Policies in a folder deny everything while the system library that evaluates them is missing.
    """
    if settings.policy_url and settings.policy_folder is not None:
        raise InvalidRequest("name one policy: CONTEXTURE_POLICY_FOLDER or CONTEXTURE_POLICY_URL")
    if settings.policy_url:
        from contexture.adapters.policy.opa import OpaPolicy

        return OpaPolicy(settings.policy_url, timeout=settings.policy_timeout_seconds)
    if settings.policy_folder is None:
        return OpenPolicy()
    try:
        from contexture.adapters.policy.rego import RegoPolicy
    except MissingLibrary as missing:
        structlog.get_logger().error("the policy cannot be loaded, and everything is denied", reason=str(missing))
        return DenyingPolicy(str(missing))

    return RegoPolicy(settings.policy_folder, timeout=settings.policy_timeout_seconds)


def is_policy_configured(settings: Settings) -> bool:
    """Whether a policy decides what a scope may do; without one, everything inside a scope is allowed."""
    return bool(settings.policy_url) or settings.policy_folder is not None


async def close_policy(chosen: Policy) -> None:
    """Close a policy, if it has anything to close."""
    close = getattr(chosen, "close", None)
    if close is not None:
        await close()


def secrets(settings: Settings) -> Secrets:
    """Return the values that must never be shown."""
    sources: list[Secrets] = [EnvironmentSecrets(secret_variables(settings), prefix=settings.secrets_prefix)]
    if settings.secrets_file is not None:
        sources.append(FileSecrets(settings.secrets_file))
    if settings.secrets_age_file is not None:
        sources.append(_age_secrets(settings))
    if settings.secrets_vault_url:
        from contexture.adapters.secrets.vault import VaultSecrets

        sources.append(VaultSecrets(settings.secrets_vault_url, token=settings.secrets_vault_token))
    return CombinedSecrets(sources)


def _age_secrets(settings: Settings) -> Secrets:
    if settings.secrets_age_file is None or settings.secrets_age_identity is None:
        raise InvalidRequest("CONTEXTURE_SECRETS_AGE_FILE needs CONTEXTURE_SECRETS_AGE_IDENTITY to decrypt it")
    from contexture.adapters.secrets.age import AgeSecrets

    return AgeSecrets(settings.secrets_age_file, identity=settings.secrets_age_identity)


_LOCAL_TIMEOUT_SECONDS = 3_600.0  # seconds: large batches are embedded here, and a build has its own deadline


def memory_health(settings: Settings) -> HealthMonitor:
    """Create the monitor that derives a health state from the memory client's successes and failures."""
    return HealthMonitor(
        HealthOptions(
            degraded_seconds=settings.degraded_seconds,
            down_failures=settings.down_failures,
            down_seconds=settings.down_seconds,
        )
    )


def memory_service(
    settings: Settings, store: Index, preparer: Preparer, search: HybridSearch, *, clock: Clock, health: Health
) -> GuardedMemory:
    """Create the configured memory service with retries and a circuit breaker; close it when the engine closes."""
    breaker = CircuitBreaker("the memory service", failures=settings.breaker_failures, seconds=settings.breaker_seconds)
    if not settings.memory_url:
        guard = MemoryGuard(health=health, breaker=breaker, patience=_LOCAL_TIMEOUT_SECONDS)
        return GuardedMemory(local_memory(store, preparer, search, clock=clock), guard)
    remote = RemoteMemory(
        settings.memory_url,
        api_key=settings.memory_api_key,
        timeout=settings.memory_timeout_seconds,
        on_invalid=lambda why: structlog.get_logger().warning("a recalled memory was skipped", reason=why),
    )
    retries = RetryPolicy(max_retries=settings.memory_max_retries, base_seconds=settings.memory_retry_base_ms / 1_000)
    probes = settings.turn_recipe == "standard" and settings.memory_probe_seconds > 0
    guard = MemoryGuard(
        health=health,
        breaker=breaker,
        retries=retries,
        patience=settings.memory_timeout_seconds,
        probe=remote.probe if probes else None,
        probe_seconds=settings.memory_probe_seconds,
    )
    return GuardedMemory(remote, guard, close=remote.close)


def local_memory(store: Index, preparer: Preparer, search: HybridSearch, *, clock: Clock) -> LocalMemory:
    """Create the memory service over this process's own index."""
    return LocalMemory(index=store, preparer=preparer, search=search, clock=clock, counters=preparer.counters)


def bus(settings: Settings) -> Bus | None:
    """Create the configured bus; None if there is none."""
    if not settings.bus:
        return None
    topics = settings.bus_inbound, settings.bus_outbound, settings.bus_dead
    if len(set(topics)) < len(topics):
        raise InvalidRequest("CONTEXTURE_BUS_INBOUND, _OUTBOUND and _DEAD must be three different topics")
    return registry.load_bus(
        settings.bus,
        BusOptions(
            topics=topics,
            group=settings.bus_group,
            partitions=settings.bus_partitions,
            at_once=settings.worker_concurrency,
            redeliver_seconds=settings.bus_redeliver_seconds,
            grace_seconds=settings.shutdown_seconds,
            extra=settings.bus_options,
        ),
    )


def worker_retries(settings: Settings) -> RetryPolicy:
    """Return how often a worker retries a message."""
    return RetryPolicy(max_retries=settings.worker_retries, base_seconds=settings.worker_retry_seconds)


def spans(settings: Settings) -> Tracer:
    """Return OpenTelemetry if it is enabled, otherwise a tracer that does nothing."""
    if not settings.otel:
        return NoopTracer()
    from contexture.adapters.spans.otel import OtelTracer

    return OtelTracer()


def traced_model(name: str, model: ChatModel, settings: Settings) -> ChatModel:
    """Return the model of this name; if tracing is enabled, each of its calls is a span."""
    if not settings.otel:
        return model
    if isinstance(model, ToolCallingModel):
        return TracedToolModel(model, spans(settings), provider=_provider_name(name))
    return TracedModel(model, spans(settings), provider=_provider_name(name))


def _provider_name(name: str) -> str:
    """Return the provider of a model: for a hosted one the vendor before the slash, otherwise the kind of model."""
    kind, _, rest = name.partition(":")
    return rest.partition("/")[0] if "/" in rest else kind or "extractive"
