"""Requests to routes: those that write, and those that read; `{n}` in a body is replaced by a number."""

from __future__ import annotations

import json
from typing import Any

WRITES: dict[str, tuple[str, Any]] = {
    "records": ("/v1/ingest/documents", {"records": [{"id": "r{n}", "text": "Pump {n} leaks."}]}),
    "pages": (
        "/v1/ingest/documents",
        {"files": [{"filename": "pump{n}.html", "content": "PGgxPlB1bXA8L2gxPg=="}], "again": True},
    ),
    "memory": ("/memory/remember", {"id": "m", "text": "Anna prefers pump {n}."}),
    "memories": ("/v1/ingest/memories", {"memories": [{"text": "Boris prefers pump {n}."}]}),
    "articles": (
        "/v1/ingest/articles",
        {"articles": [{"url": "https://example.com/{n}", "title": "Pump {n}", "text": "The pump number {n} leaks."}]},
    ),
    "blocks": ("/v1/ingest/blocks", {"blocks": [{"id": "b{n}", "type": "page", "text": "Pump {n}"}]}),
    "move": ("/v1/blocks/b1/move", {"parent": None, "order": 1.0}),
    "restore": ("/v1/blocks/b1/restore", None),
    "view": ("/v1/blocks/b1/view", None),
    "chat": ("/v1/chat", {"session_id": "s", "message": "Pump {n} leaks, remember that."}),
    "chat with an id": ("/v1/chat", {"session_id": "s", "message": "Pump {n} leaks.", "message_id": "id{n}"}),
    "command": ("/v1/commands", {"raw_command": "/memory store pump {n}"}),
    "feedback": ("/context/feedback", {"memory_id": "m", "score": 1}),
}
READS: dict[str, tuple[str, Any]] = {
    "completion": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Pump {n} leaks."}]}),
    "query": ("/v1/context/query", {"query": "pump"}),
    "turn": ("/v1/context/turn", {"user_message": "pump", "history": []}),
    "build of a command": ("/v1/context/command", {"raw_command": "/ask query=pump"}),
    "workspace": ("/v1/context/workspace", {"query": "pump"}),
    "research": ("/v1/context/research", {"query": "pump"}),
    "search": ("/v1/search", {"query": "pump"}),
    "recall": ("/memory/recall", {"query": "pump"}),
}
GETS = ("/v1/sessions", "/v1/sessions/s/events", "/v1/records/documents/r1", "/v1/blocks/b1", "/v1/replies/id1")


def number_body(body: object, number: int) -> Any:
    """The body with `{n}` replaced."""
    return json.loads(json.dumps(body).replace("{n}", str(number)))
