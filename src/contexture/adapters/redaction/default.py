"""The redactor that is used unless someone chooses another."""

from __future__ import annotations

from collections.abc import Sequence

from contexture.adapters.redaction.composite import CompositeRedactor
from contexture.adapters.redaction.presidio import DOCUMENTS, PresidioRedactor
from contexture.adapters.redaction.rules import RuleRedactor
from contexture.adapters.redaction.rules_common import COMMON, URL
from contexture.adapters.redaction.rules_phone import PHONES
from contexture.adapters.redaction.rules_russian import RUSSIAN
from contexture.adapters.redaction.secrets import SECRETS
from contexture.errors import InvalidRequest
from contexture.ports import Redactor

NER_ENTITIES = ("PERSON", "LOCATION", "ADDRESS")
_RULES = (*COMMON, *PHONES, *RUSSIAN)
DEFAULT_ENTITIES = tuple(dict.fromkeys(item.label for item in (*_RULES, *DOCUMENTS)))
ENTITIES = (*DEFAULT_ENTITIES, "URL", *NER_ENTITIES)


def default_redactor(*, entities: Sequence[str] | None = None, ner: bool = False, secrets: bool = True) -> Redactor:
    """A redactor for these entity types; None means `DEFAULT_ENTITIES`, to which `ner` adds names and places.

    default_redactor()                                # personal data and credentials
    default_redactor(entities=("EMAIL", "PHONE"))     # only these, and credentials
    default_redactor(ner=True)                        # names and places too; needs contexture[ner]
    """
    chosen = _chosen(entities, ner=ner)
    rules = [rule for rule in (*_RULES, URL) if rule.label in chosen]
    parts: list[Redactor] = [RuleRedactor([*rules, *(SECRETS if secrets else ())])]
    documents = [document for document in DOCUMENTS if document.label in chosen]
    if documents:
        parts.append(PresidioRedactor(documents))
    names = [label for label in NER_ENTITIES if label in chosen]
    if names:
        from contexture.adapters.redaction.ner import NerRedactor

        parts.append(NerRedactor(names))
    return CompositeRedactor(parts)


def _chosen(entities: Sequence[str] | None, *, ner: bool) -> frozenset[str]:
    if entities is None:
        return frozenset((*DEFAULT_ENTITIES, *(NER_ENTITIES if ner else ())))
    unknown = sorted(set(entities) - set(ENTITIES))
    if unknown:
        raise InvalidRequest(f"no redaction rule finds {unknown[0]!r}; choose from {', '.join(ENTITIES)}")
    if not ner and not set(entities).isdisjoint(NER_ENTITIES):
        raise InvalidRequest(f"{', '.join(NER_ENTITIES)} need named entity recognition: switch `ner` on")
    return frozenset(entities)
