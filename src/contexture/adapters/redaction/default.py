"""`default_redactor`, which builds the redactor for the chosen entity types.

Also `CompositeRedactor`, which combines several redactors, and `NoopRedactor`, which finds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from contexture.adapters.redaction._credentials import CREDENTIAL_RULES
from contexture.adapters.redaction._normalized import NormalizedRedactor
from contexture.adapters.redaction._personal_data import COMMON_RULES, PHONE_RULES, RUSSIAN_RULES, URL
from contexture.adapters.redaction._rules import RuleRedactor, fingerprint, merge_overlapping_spans
from contexture.adapters.redaction.presidio import PRESIDIO_ENTITIES, PresidioRedactor
from contexture.errors import InvalidRequest
from contexture.ports import Redactor
from contexture.types import Span

NER_ENTITIES = ("PERSON", "LOCATION", "ADDRESS")
_PERSONAL_DATA_RULES = (*COMMON_RULES, *PHONE_RULES, *RUSSIAN_RULES)
DEFAULT_ENTITIES = tuple(dict.fromkeys(item.label for item in (*_PERSONAL_DATA_RULES, *PRESIDIO_ENTITIES)))
ENTITIES = (*DEFAULT_ENTITIES, "URL", *NER_ENTITIES)


def default_redactor(*, entities: Sequence[str] | None = None, ner: bool = False, secrets: bool = True) -> Redactor:
    """A redactor for these entity types; None means `DEFAULT_ENTITIES`, to which `ner` adds names and places.

    default_redactor()                                # personal data and credentials
    default_redactor(entities=("EMAIL", "PHONE"))     # only these, and credentials
    default_redactor(ner=True)                        # names and places too; needs contexture[ner]
    """
    chosen = _chosen_labels(entities, ner=ner)
    rules = [rule for rule in (*_PERSONAL_DATA_RULES, URL) if rule.label in chosen]
    patterns: list[Redactor] = [RuleRedactor([*rules, *(CREDENTIAL_RULES if secrets else ())])]
    documents = [document for document in PRESIDIO_ENTITIES if document.label in chosen]
    if documents:
        patterns.append(PresidioRedactor(documents))
    parts: list[Redactor] = [NormalizedRedactor(CompositeRedactor(patterns))]
    names = [label for label in NER_ENTITIES if label in chosen]
    if names:
        from contexture.adapters.redaction._ner import NerRedactor

        parts.append(NerRedactor(names))
    return CompositeRedactor(parts)


def _chosen_labels(entities: Sequence[str] | None, *, ner: bool) -> frozenset[str]:
    if entities is None:
        return frozenset((*DEFAULT_ENTITIES, *(NER_ENTITIES if ner else ())))
    unknown = sorted(set(entities) - set(ENTITIES))
    if unknown:
        raise InvalidRequest(f"no redaction rule finds {unknown[0]!r}; choose from {', '.join(ENTITIES)}")
    if not ner and not set(entities).isdisjoint(NER_ENTITIES):
        raise InvalidRequest(f"{', '.join(NER_ENTITIES)} need named entity recognition: switch `ner` on")
    return frozenset(entities)


class CompositeRedactor:
    """Combines several redactors; overlapping spans are merged and labelled after the longest."""

    def __init__(self, parts: Sequence[Redactor]) -> None:
        self._parts = tuple(parts)
        self._rules = f"all-{fingerprint(part.rules for part in self._parts)}"

    @property
    def rules(self) -> str:
        """Fingerprint that changes whenever the rules of a part do."""
        return self._rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap."""
        return merge_overlapping_spans(span for part in self._parts for span in part.scan(text, lang))


class NoopRedactor:
    """Finds nothing: for text that is known to contain no personal data and no secrets."""

    @property
    def rules(self) -> str:
        """Constant fingerprint."""
        return "none"

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Return no spans."""
        del text, lang
        return ()
