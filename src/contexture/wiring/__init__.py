"""Creates objects from settings, and is the only package that imports adapters.

Here a name in the settings selects an implementation. Every name of this package is imported when it is used, so that
asking for one of them loads no other adapter.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from contexture.adapters.metrics.prometheus import WorkerMetrics
    from contexture.adapters.redaction.default import default_redactor
    from contexture.adapters.store_backup import BackupManifest, back_up, restore_backup
    from contexture.adapters.store_damage import DamagedDatabase
    from contexture.adapters.store_migration.migrate import migrate_store, open_migration_store
    from contexture.adapters.token_counters import counter_for
    from contexture.wiring._answering import (
        article_removal_hook,
        chat_model,
        chat_recipe,
        chat_route,
        command_writer,
        graph_cache,
        graph_store,
        import_texts_eraser,
        memory_place,
        missing_model_libraries,
        out_of_reach,
        outbox,
        replies,
        scrub_index,
        sessions,
        summarizer,
    )
    from contexture.wiring._builders import (
        TurnParts,
        ask_recipe,
        builder_services,
        cache_metrics,
        capsule_replayer,
        command_builder,
        research_builder,
        text_similarities,
        text_similarity,
        turn_builder,
        workspace_builder,
    )
    from contexture.wiring._core import (
        SystemClock,
        encoders,
        index,
        operator,
        page_encoder,
        preparer,
        query_builder,
        redactor,
        routed_index,
        search,
        visual_pages,
    )
    from contexture.wiring._services import (
        bus,
        close_policy,
        is_policy_configured,
        local_memory,
        memory_health,
        memory_service,
        policy,
        secrets,
        spans,
        traced_model,
        worker_retries,
    )
    from contexture.wiring._store import (
        api_keys,
        audit_store,
        builds,
        connection_pool,
        delete_derived_files,
        disk_space_problem,
        find_store_damage,
        lock_folder,
        qdrant_server,
        salvage_store,
        sibling_store_address,
        unsearched_places,
    )
    from contexture.wiring.content import (
        DEFAULT_PAGE_FILES,
        PAGE_FILES,
        block_store,
        block_writer,
        feed_parser,
        feed_source,
        missing_ocr_library,
        news_store,
        ocr_state,
        page_extractor,
        page_store,
        reading_workers,
    )
    from contexture.wiring.plugins import load_builder, load_importers, load_other_builders, log_broken_plugins

__all__ = [
    "DEFAULT_PAGE_FILES",
    "PAGE_FILES",
    "BackupManifest",
    "DamagedDatabase",
    "SystemClock",
    "TurnParts",
    "WorkerMetrics",
    "api_keys",
    "article_removal_hook",
    "ask_recipe",
    "audit_store",
    "back_up",
    "block_store",
    "block_writer",
    "builder_services",
    "builds",
    "bus",
    "cache_metrics",
    "capsule_replayer",
    "chat_model",
    "chat_recipe",
    "chat_route",
    "close_policy",
    "command_builder",
    "command_writer",
    "connection_pool",
    "counter_for",
    "default_redactor",
    "delete_derived_files",
    "disk_space_problem",
    "encoders",
    "feed_parser",
    "feed_source",
    "find_store_damage",
    "graph_cache",
    "graph_store",
    "import_texts_eraser",
    "index",
    "is_policy_configured",
    "load_builder",
    "load_importers",
    "load_other_builders",
    "local_memory",
    "lock_folder",
    "log_broken_plugins",
    "memory_health",
    "memory_place",
    "memory_service",
    "migrate_store",
    "missing_model_libraries",
    "missing_ocr_library",
    "news_store",
    "ocr_state",
    "open_migration_store",
    "operator",
    "out_of_reach",
    "outbox",
    "page_encoder",
    "page_extractor",
    "page_store",
    "policy",
    "preparer",
    "qdrant_server",
    "query_builder",
    "reading_workers",
    "redactor",
    "replies",
    "research_builder",
    "restore_backup",
    "routed_index",
    "salvage_store",
    "scrub_index",
    "search",
    "secrets",
    "sessions",
    "sibling_store_address",
    "spans",
    "summarizer",
    "text_similarities",
    "text_similarity",
    "traced_model",
    "turn_builder",
    "unsearched_places",
    "visual_pages",
    "worker_retries",
    "workspace_builder",
]

_NAMES = {
    "contexture.adapters.metrics.prometheus": "WorkerMetrics",
    "contexture.adapters.redaction.default": "default_redactor",
    "contexture.adapters.store_backup": "BackupManifest back_up restore_backup",
    "contexture.adapters.store_damage": "DamagedDatabase",
    "contexture.adapters.store_migration.migrate": "migrate_store open_migration_store",
    "contexture.adapters.token_counters": "counter_for",
    "contexture.wiring._answering": "article_removal_hook chat_model chat_recipe chat_route command_writer graph_cache "
    "graph_store import_texts_eraser memory_place missing_model_libraries out_of_reach outbox replies scrub_index "
    "sessions summarizer",
    "contexture.wiring._builders": "TurnParts ask_recipe builder_services cache_metrics capsule_replayer "
    "command_builder research_builder text_similarities text_similarity turn_builder workspace_builder",
    "contexture.wiring.content": "DEFAULT_PAGE_FILES PAGE_FILES block_store block_writer feed_parser feed_source "
    "missing_ocr_library news_store ocr_state page_extractor page_store reading_workers",
    "contexture.wiring._core": "SystemClock encoders index operator page_encoder preparer query_builder redactor "
    "routed_index search visual_pages",
    "contexture.wiring.plugins": "load_builder load_importers load_other_builders log_broken_plugins",
    "contexture.wiring._services": "bus close_policy is_policy_configured local_memory memory_health memory_service "
    "policy secrets spans traced_model worker_retries",
    "contexture.wiring._store": "api_keys audit_store builds connection_pool delete_derived_files disk_space_problem "
    "find_store_damage lock_folder qdrant_server salvage_store sibling_store_address unsearched_places",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    """A name of this package, imported from where it is defined."""
    if name not in _MODULES:
        raise AttributeError(f"module 'contexture.wiring' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
