"""Redaction of national document numbers and crypto wallets with Presidio's recognizers.

Recognizers run directly, without Presidio's engine, and only on text that mentions their document: a checksum of one
digit accepts a tenth of all numbers, so the mention decides. Presidio is imported for the first such text, because it
loads spaCy, which takes seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from contexture.adapters.redaction._rules import fingerprint, merge_overlapping_spans
from contexture.types import Span

if TYPE_CHECKING:
    from presidio_analyzer import LocalRecognizer
    from presidio_analyzer.nlp_engine import NlpArtifacts

_CHARS_AFTER_MENTION = 80
_CHECKSUM_SCORE = 1.0
_PATTERN_SCORE = 0.3
_ANY_SCORE = 0.01
_DIGIT = re.compile("[0-9]")


@dataclass(frozen=True, kw_only=True, slots=True)
class PresidioEntity:
    """An entity type of Presidio: its name, its recognizer class, and the words that must be mentioned before it.

    `floor` is the minimum score; 1.0 requires a valid checksum.
    """

    label: str
    recognizer: str
    near: tuple[str, ...]
    floor: float = _CHECKSUM_SCORE


def _entity(label: str, recognizer: str, *near: str, floor: float = _CHECKSUM_SCORE) -> PresidioEntity:
    return PresidioEntity(label=label, recognizer=f"{recognizer}Recognizer", near=near, floor=floor)


PRESIDIO_ENTITIES = (
    _entity("CRYPTO", "Crypto", "wallet", "bitcoin", "btc", "crypto", "кошел", "биткоин"),
    _entity("MEDICAL_LICENSE", "MedicalLicense", "medical licen", "dea ", "prescriber"),
    _entity("US_ITIN", "UsItin", "itin", "taxpayer", "tax id", floor=_PATTERN_SCORE),
    _entity("US_PASSPORT", "UsPassport", "passport", floor=_ANY_SCORE),
    _entity("US_BANK_NUMBER", "UsBank", "bank account", "account no", "account num", "account #", floor=_ANY_SCORE),
    _entity("ABA_ROUTING_NUMBER", "AbaRouting", "aba ", "routing"),
    _entity("UK_NHS", "Nhs", "nhs", "national health"),
    _entity("UK_NINO", "UkNino", "nino", "national insurance", "ni num", floor=_PATTERN_SCORE),
    _entity("AU_TFN", "AuTfn", "tfn", "tax file"),
    _entity("AU_MEDICARE", "AuMedicare", "medicare"),
    _entity("CA_SIN", "CaSin", "sin ", "sin:", "social insurance", floor=_PATTERN_SCORE),
    _entity("IN_AADHAAR", "InAadhaar", "aadhaar", "aadhar", "uidai"),
    _entity("IN_PAN", "InPan", "pan ", "pan:", "permanent account", floor=_PATTERN_SCORE),
    _entity("SG_NRIC_FIN", "SgFin", "nric", "fin ", "fin:", floor=_PATTERN_SCORE),
    _entity("ES_NIF", "EsNif", "nif", "dni"),
    _entity("IT_FISCAL_CODE", "ItFiscalCode", "codice fiscale", "fiscal code"),
    _entity("PL_PESEL", "PlPesel", "pesel"),
)


class PresidioRedactor:
    """Finds document numbers near a mention of the document in the text."""

    def __init__(self, documents: Sequence[PresidioEntity] = PRESIDIO_ENTITIES) -> None:
        self._documents = tuple(documents)
        self._words = [(word, item) for item in self._documents for word in item.near]
        parts = (f"{item.label}|{item.recognizer}|{item.near}|{item.floor}" for item in self._documents)
        self._rules = f"presidio-{fingerprint((version('presidio-analyzer'), *parts))}"

    @property
    def rules(self) -> str:
        """Fingerprint that changes with the entities and the installed Presidio version."""
        return self._rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap."""
        del lang
        if _DIGIT.search(text) is None:
            return ()
        folded = text.lower()
        due = dict.fromkeys(item for word, item in self._words if word in folded)
        return merge_overlapping_spans(span for document in due for span in self._find(document, text))

    def _find(self, document: PresidioEntity, text: str) -> Iterator[Span]:
        for offset, stretch in _texts_near_mentions(document.near, text):
            if _DIGIT.search(stretch):
                for start, end, score in self._analyze(document.label, stretch):
                    if score >= document.floor:
                        yield Span(start + offset, end + offset, document.label, score)

    def _analyze(self, label: str, text: str) -> list[tuple[int, int, float]]:
        # Pattern recognizers do not use the artifacts of an NLP engine.
        results = self._recognizers[label].analyze(text, [label], cast("NlpArtifacts", None))
        return [(result.start, result.end, result.score) for result in results]

    @cached_property
    def _recognizers(self) -> dict[str, LocalRecognizer]:
        from presidio_analyzer import predefined_recognizers

        return {item.label: getattr(predefined_recognizers, item.recognizer)() for item in self._documents}


def _texts_near_mentions(near: Sequence[str], text: str) -> list[tuple[int, str]]:
    """Offset and text of each mention with the characters after it; mentions close to each other are merged."""
    mention = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, near))})", re.IGNORECASE)
    found: list[tuple[int, int]] = []
    for match in mention.finditer(text):
        if found and match.start() <= found[-1][1]:
            found[-1] = (found[-1][0], match.end() + _CHARS_AFTER_MENTION)
        else:
            found.append((match.start(), match.end() + _CHARS_AFTER_MENTION))
    return [(start, text[start:end]) for start, end in found]
