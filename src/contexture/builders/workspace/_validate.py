"""Validation of a `ContextPayload`: errors are broken guarantees, warnings are losses of quality."""

from collections import Counter
from collections.abc import Iterator

from contexture.builders.workspace import result
from contexture.builders.workspace._render import render_item
from contexture.pipeline.fence import PromptFormat, is_fenced
from contexture.ports import TokenCounter
from contexture.types import Form


def validate_payload(payload: result.ContextPayload, counter: TokenCounter) -> result.ContextValidationResult:
    """Validate a payload: errors are broken guarantees, warnings are losses of quality.

    Each names its section and item.
    """
    errors = (*_check_totals(payload, counter), *_check_items(payload), *_check_sections(payload))
    return result.ContextValidationResult(valid=not errors, errors=errors, warnings=tuple(_find_warnings(payload)))


def _check_totals(payload: result.ContextPayload, counter: TokenCounter) -> Iterator[result.Issue]:
    tokens = counter.count_messages(payload.messages)
    if tokens > payload.budget:
        yield result.Issue(
            code="OVER_BUDGET", message=f"the context has {tokens} tokens and its budget is {payload.budget}"
        )
    if tokens != payload.metadata.total_tokens:
        said = payload.metadata.total_tokens
        yield result.Issue(code="WRONG_COUNT", message=f"the context has {tokens} tokens and its metadata says {said}")
    counts = Counter(item.block_id for section in payload.sections for item in section.items)
    for block_id, times in counts.items():
        if times > 1:
            yield result.Issue(code="DUPLICATE", message=f"block {block_id!r} is shown {times} times", item=block_id)


def _check_sections(payload: result.ContextPayload) -> Iterator[result.Issue]:
    for section in payload.sections:
        cap = payload.caps.get(section.type)
        if cap is not None and section.token_count > cap:
            said = f"section {str(section.type)!r} has {section.token_count} tokens and may have {cap}"
            yield result.Issue(code="OVER_CAP", message=said, section=section.type)


def _check_items(payload: result.ContextPayload) -> Iterator[result.Issue]:
    for section in payload.sections:
        for item in section.items:
            yield from _check_item(payload, section, item)


def _check_item(
    payload: result.ContextPayload, section: result.ContextSection, item: result.ContextItem
) -> Iterator[result.Issue]:
    about = {"section": str(section.type), "item": item.block_id}
    if not 0 <= item.relevance <= 1:
        yield result.Issue(code="BAD_RELEVANCE", message=f"relevance {item.relevance} is not from 0 to 1", **about)
    if not item.content.strip():
        yield result.Issue(code="EMPTY_ITEM", message=f"item {item.block_id!r} says nothing", **about)
    if section.type is result.SectionType.SYSTEM:
        return
    if not is_fenced(item.content, PromptFormat.WORKSPACE):
        yield result.Issue(
            code="UNFENCED", message=f"item {item.block_id!r} has a line that looks like a marker", **about
        )
    if render_item(item) not in payload.serialized and not _is_in_document(payload, item):
        yield result.Issue(
            code="NOT_SHOWN", message=f"item {item.block_id!r} is not in the serialized context", **about
        )


def _is_in_document(payload: result.ContextPayload, item: result.ContextItem) -> bool:
    """Whether every line of an item is in the context, where a document shows it indented."""
    return all(line.strip() in payload.serialized for line in item.content.splitlines())


def _find_warnings(payload: result.ContextPayload) -> Iterator[result.Issue]:
    for section in payload.sections:
        if section.type in result.COLLECTED_SECTIONS and not section.items:
            yield result.Issue(
                code="EMPTY_SECTION", message=f"section {str(section.type)!r} has no items", section=section.type
            )
        for item in section.items:
            if item.metadata.form is not Form.FULL:
                said = f"item {item.block_id!r} is shortened"
                yield result.Issue(code="SHORTENED", message=said, section=section.type, item=item.block_id)
    for lost in payload.degradations:
        yield result.Issue(code="DEGRADED", message=f"{lost.source}: {lost.reason}", section=_section_name(lost.source))
    if not payload.exact:
        yield result.Issue(code="ESTIMATED", message=f"tokens are estimated for encoding {payload.encoding!r}")


def _section_name(source: str) -> str | None:
    return source if source in set(result.COLLECTED_SECTIONS) else None
