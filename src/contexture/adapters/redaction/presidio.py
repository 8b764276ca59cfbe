"""National documents and wallets through Presidio's recognizers.

A recognizer is asked directly, without Presidio's engine, and only about text that mentions its document: a checksum
of one digit passes a tenth of all numbers, so the mention is what makes a find. Presidio is imported when the first
such text arrives, because it loads spaCy, which takes seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, cast

from contexture.adapters.redaction.rules import fingerprint
from contexture.adapters.redaction.spans import settle
from contexture.types import Span

if TYPE_CHECKING:
    from presidio_analyzer import LocalRecognizer
    from presidio_analyzer.nlp_engine import NlpArtifacts

_REACH = 80
_CHECKED = 1.0
_SHAPED = 0.3
_ANY = 0.01
_DIGIT = re.compile("[0-9]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Document:
    """A kind of document: Presidio's name for it, the class that finds it, and the words that announce it.

    `floor` is the least score that counts; 1.0 asks for a passed checksum.
    """

    label: str
    recognizer: str
    near: tuple[str, ...]
    floor: float = _CHECKED


def _document(label: str, recognizer: str, *near: str, floor: float = _CHECKED) -> Document:
    return Document(label=label, recognizer=f"{recognizer}Recognizer", near=near, floor=floor)


DOCUMENTS = (
    _document("CRYPTO", "Crypto", "wallet", "bitcoin", "btc", "crypto", "кошел", "биткоин"),
    _document("MEDICAL_LICENSE", "MedicalLicense", "medical licen", "dea ", "prescriber"),
    _document("US_ITIN", "UsItin", "itin", "taxpayer", "tax id", floor=_SHAPED),
    _document("US_PASSPORT", "UsPassport", "passport", floor=_ANY),
    _document("US_BANK_NUMBER", "UsBank", "bank account", "account no", "account num", "account #", floor=_ANY),
    _document("ABA_ROUTING_NUMBER", "AbaRouting", "aba ", "routing"),
    _document("UK_NHS", "Nhs", "nhs", "national health"),
    _document("UK_NINO", "UkNino", "nino", "national insurance", "ni num", floor=_SHAPED),
    _document("AU_TFN", "AuTfn", "tfn", "tax file"),
    _document("AU_MEDICARE", "AuMedicare", "medicare"),
    _document("CA_SIN", "CaSin", "sin ", "sin:", "social insurance", floor=_SHAPED),
    _document("IN_AADHAAR", "InAadhaar", "aadhaar", "aadhar", "uidai"),
    _document("IN_PAN", "InPan", "pan ", "pan:", "permanent account", floor=_SHAPED),
    _document("SG_NRIC_FIN", "SgFin", "nric", "fin ", "fin:", floor=_SHAPED),
    _document("ES_NIF", "EsNif", "nif", "dni"),
    _document("IT_FISCAL_CODE", "ItFiscalCode", "codice fiscale", "fiscal code"),
    _document("PL_PESEL", "PlPesel", "pesel"),
)


class PresidioRedactor:
    """Finds the documents that the text itself announces."""

    def __init__(self, documents: Sequence[Document] = DOCUMENTS) -> None:
        self._documents = tuple(documents)
        self._words = [(word, item) for item in self._documents for word in item.near]
        parts = (f"{item.label}|{item.recognizer}|{item.near}|{item.floor}" for item in self._documents)
        self._rules = f"presidio-{fingerprint((version('presidio-analyzer'), *parts))}"

    @property
    def rules(self) -> str:
        """Changes with the documents and with the installed Presidio."""
        return self._rules

    def scan(self, text: str, lang: str) -> Sequence[Span]:
        """Sorted spans that do not overlap."""
        del lang
        if _DIGIT.search(text) is None:
            return ()
        folded = text.lower()
        due = dict.fromkeys(item for word, item in self._words if word in folded)
        return settle(span for document in due for span in self._find(document, text))

    def _find(self, document: Document, text: str) -> Iterator[Span]:
        for offset, stretch in _stretches(document.near, text):
            if _DIGIT.search(stretch):
                for start, end, score in self._ask(document.label, stretch):
                    if score >= document.floor:
                        yield Span(start + offset, end + offset, document.label, score)

    def _ask(self, label: str, text: str) -> list[tuple[int, int, float]]:
        # Pattern recognizers never look at the artifacts of an NLP engine.
        results = self._recognizers[label].analyze(text, [label], cast("NlpArtifacts", None))
        return [(result.start, result.end, result.score) for result in results]

    @cached_property
    def _recognizers(self) -> dict[str, LocalRecognizer]:
        from presidio_analyzer import predefined_recognizers

        return {item.label: getattr(predefined_recognizers, item.recognizer)() for item in self._documents}


def _stretches(near: Sequence[str], text: str) -> list[tuple[int, str]]:
    """What stands within reach behind each mention, with its offset; mentions in reach of each other share one."""
    mention = re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, near))})", re.IGNORECASE)
    found: list[tuple[int, int]] = []
    for match in mention.finditer(text):
        if found and match.start() <= found[-1][1]:
            found[-1] = (found[-1][0], match.end() + _REACH)
        else:
            found.append((match.start(), match.end() + _REACH))
    return [(start, text[start:end]) for start, end in found]
