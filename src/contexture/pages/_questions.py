"""What a question over documents names: companies, periods, forms and financial statements, and words for its figures.

A question asks for "capital expenditure" where a report says "purchases of property, plant and equipment". The glossary
maps the terms of analysts to the captions of statements and to the statement that holds them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from contexture.pages._names import Subject, list_subjects, names_company
from contexture.pages.records import FinancialStatement, find_form, find_quarter, find_statement_names
from contexture.text.terms import extract_terms

_COMPANY_WEIGHT = 0.5
_YEAR_WEIGHT = 0.35
_FORM_WEIGHT = 0.2
_QUARTER_WEIGHT = 0.2
_STATEMENT_WEIGHT = 0.5
_ROW_WEIGHT = 0.5
_STATEMENT_ROW_WEIGHT = 0.5
_CONTENTS_SHARE = 0.7
_MAX_NAME_WORDS = 4
_RELATED_SHARE = 0.8  # of a word of the question
_MIN_LABEL_SHARE = 0.7  # of a row's label
_ONE_WORD_SHARE = 0.5
_ROW_LABEL = re.compile(r"^\|([^|\n]{1,200})\|", re.MULTILINE)
_LETTER = re.compile(r"[^\W\d_]")
_LABEL_TAIL = re.compile(r"\s(?:[—–-]\s|\(|net of\b|attributable\b).*|[:(].*")
# What these ask for is told in sentences; the base of a percentage and the owner of a figure are not asked for.
_NARRATIVE = re.compile(
    r"\bwhy (?:did|do|does|is|are|was|were|has|have)\b|\bwhat (?:drove|drives|caused|led)\b"
    r"|\b(?:drivers?|reasons?|nature|purpose|describe|почему|причин\w*)\b",
    re.IGNORECASE,
)
_NOT_ASKED_FOR = re.compile(r"\b[Pp]ercent(?:age)? of (?:net |total )?\w+|\b[A-ZА-Я\d][\w&.-]*['’]s\b")
_GENERAL_TERMS = frozenset(extract_terms("total net other all sum million thousand dollar year note item"))
_PASSING_TERMS = frozenset(extract_terms("total net related expenses costs"))  # which a question may leave out

_WORD = re.compile(r"[^\W_]+")
_YEAR = re.compile(r"(?<!\d)(?:fy\s?'?|fiscal\s+(?:year\s+)?)?((?:19|20)\d\d)(?!\d)", re.IGNORECASE)
_SHORT_YEAR = re.compile(r"\bfy\s?'?(\d\d)\b", re.IGNORECASE)

_CONTENTS = re.compile(
    r"\b(?:contents|chapters?|sections?|outline|structure|topics?|on (?:which|what) pages?)\b"
    r"|\b(?:содержани|оглавлени|глав|раздел|на какой страниц)\w*",
    re.IGNORECASE,
)

_CURRENT = "total current assets total current liabilities cash receivables inventories"
_SALES = "net sales revenue net revenue"

_INCOME, _BALANCE, _CASH_FLOW = (
    (FinancialStatement.INCOME,),
    (FinancialStatement.BALANCE,),
    (FinancialStatement.CASH_FLOW,),
)
_BOTH = (FinancialStatement.BALANCE, FinancialStatement.INCOME)

# Term of a question, words of a report, and the statements that hold them.
_GLOSSARY: tuple[tuple[str, str, tuple[FinancialStatement, ...]], ...] = (
    (r"capital expenditures?|capex|capital spending|капитальн\w+ (?:затрат|вложени)\w*",
     "purchases of property plant and equipment additions to property capital spending", _CASH_FLOW),
    (r"pp&e|pp&?ne|fixed assets?|основны\w+ средств\w*", "property plant and equipment net", _BALANCE),
    (r"capital.intensive|capital intensity|return on assets|\broa\b|asset turnover",
     f"property plant and equipment net total assets purchases of property {_SALES} net income",
     (FinancialStatement.BALANCE, FinancialStatement.INCOME, FinancialStatement.CASH_FLOW)),
    (r"(?:quick|current|cash|acid.test) ratio|working capital|ликвидност\w*", _CURRENT, _BALANCE),
    (r"days? (?:of )?(?:payables?|payable outstanding)|\bdpo\b", "accounts payable cost of sales cost of goods sold",
     _BOTH),
    (r"days? (?:of )?(?:sales|receivables?)|\bdso\b", f"accounts receivable {_SALES}", _BOTH),
    (r"inventory turnover|days? (?:of )?inventor\w+|\bdio\b|cash conversion cycle",
     "inventories cost of sales cost of goods sold accounts receivable accounts payable", _BOTH),
    (r"debt.to.equity|leverage|total debt|net debt|borrowings",
     "long-term debt short-term debt current portion total equity", _BALANCE),
    (r"return on equity|\broe\b|book value", "net income total shareholders equity stockholders", _BOTH),
    (r"interest coverage", "interest expense operating income", _INCOME),
    (r"gross (?:margin|profit)|cogs|валов\w+", f"gross profit cost of sales cost of goods sold {_SALES}", _INCOME),
    (r"operating (?:margin|income|profit)|\bebit\b",
     f"operating income operating profit percent of net sales {_SALES}", _INCOME),
    (r"net (?:margin|income|profit)|earnings|чист\w+ прибыл\w*", "net income attributable earnings per share", _INCOME),
    (r"\bebitda\b", "EBITDA depreciation and amortization operating income reconciliation", ()),
    (r"\bd&a\b|depreciation|amorti[sz]ation", "depreciation and amortization", _CASH_FLOW),
    (r"free cash flow|\bfcf\b|operating cash flow|cash from operations",
     "net cash provided by operating activities purchases of property plant and equipment", _CASH_FLOW),
    (r"dividends?|payout", "dividends paid dividends declared per share", _CASH_FLOW),
    (r"buybacks?|stock repurchases?|share repurchases?",
     "repurchase of common shares purchases of treasury stock", _CASH_FLOW),
    (r"effective tax rate|income tax", "provision for income taxes income before income taxes", _INCOME),
    (r"sg&a|opex", "selling general and administrative expenses operating expenses", _INCOME),
    (r"r&d", "research and development expenses", _INCOME),
    (r"\brevenues?\b|\bsales\b|выручк\w*", _SALES, ()),
    (r"\beps\b", "earnings per share basic diluted", _INCOME),
    (r"m&a", "acquisitions divestitures", ()),
    (r"organic (?:growth|sales|revenue)", "organic growth constant currency comparable", ()),
    (r"headcount|how many employees|workforce", "employees full-time", ()),
)  # fmt: skip
_ENTRIES = tuple(
    (re.compile(rf"(?<!\w)(?:{term})(?!\w)", re.IGNORECASE), words, where) for term, words, where in _GLOSSARY
)
_STATEMENT_ALIASES = {
    FinancialStatement.INCOME: re.compile(
        r"income statement|p&l|profit (?:and|&) loss|statement of operations", re.IGNORECASE
    ),
    FinancialStatement.CASH_FLOW: re.compile(r"cash flow statement|statement of cash flows?", re.IGNORECASE),
}


@dataclass(frozen=True, kw_only=True, slots=True)
class QuestionFields:
    """What a question names; `related` are the words that a report uses for what it asks about.

    `contents` says that it asks for the contents of a document, such as its chapters. `terms` are those of its words
    by which it may ask for a row of a table, none if it asks for a reason, and `related_terms` those of `related`.
    `subjects` are the names in it, and `content_terms` all its words.
    """

    names: frozenset[str] = frozenset()
    years: frozenset[int] = frozenset()
    quarter: int = 0
    form: str = ""
    statements: frozenset[str] = frozenset()
    related: str = ""
    contents: bool = False
    terms: frozenset[int] = frozenset()
    related_terms: frozenset[int] = frozenset()
    subjects: tuple[Subject, ...] = ()
    content_terms: frozenset[int] = frozenset()


def read_question(question: str) -> QuestionFields:
    """The fields that a question names."""
    holders = [where for pattern, _, where in _ENTRIES if pattern.search(question)]
    named = {
        *find_statement_names(question),
        *(key for key, alias in _STATEMENT_ALIASES.items() if alias.search(question)),
    }
    amount = "" if _NARRATIVE.search(question) else _NOT_ASKED_FOR.sub("", question)
    return QuestionFields(
        names=frozenset(_list_names(question)),
        years=frozenset(
            [*map(int, _YEAR.findall(question)), *(2000 + int(year) for year in _SHORT_YEAR.findall(question))]
        ),
        quarter=find_quarter(question),
        form=find_form(question),
        statements=frozenset(named or (each.value for where in holders for each in where)),
        related=related_words(question),
        terms=frozenset(extract_terms(amount)),
        related_terms=frozenset(extract_terms(related_words(amount))),
        contents=_CONTENTS.search(question) is not None,
        subjects=list_subjects(question),
        content_terms=frozenset(extract_terms(question)),
    )


def related_words(question: str) -> str:
    """The words that a report uses for the terms of a question, without repeats."""
    words = " ".join(words for pattern, words, _ in _ENTRIES if pattern.search(question))
    return " ".join(dict.fromkeys(words.split()))


def weigh_page(asked: QuestionFields, payload: Mapping[str, Any], *, row: float = 0.0) -> float:
    """Factor of a page's score: above 1 when the question names its document, its statement or a row of its tables.

    `row` is the result of `match_rows`; it counts twice on a page with a financial statement. A list of contents has
    the words of the pages that it names, and ranks below them.
    """
    weight = 1.0
    weight += _COMPANY_WEIGHT * names_company(asked.subjects, asked.names, payload.get("company") or "")
    weight += _YEAR_WEIGHT * (not asked.years.isdisjoint(payload.get("years") or ()))
    weight += _QUARTER_WEIGHT * bool(asked.quarter and asked.quarter == payload.get("quarter"))
    weight += _FORM_WEIGHT * bool(asked.form and asked.form == payload.get("form"))
    weight += _STATEMENT_WEIGHT * (not asked.statements.isdisjoint(payload.get("statements") or ()))
    weight += row * (_ROW_WEIGHT + _STATEMENT_ROW_WEIGHT * bool(payload.get("statements")))
    return weight * (_CONTENTS_SHARE if payload.get("contents") and not asked.contents else 1.0)


def match_rows(asked: QuestionFields, text: str) -> float:
    """How well a row of a table is what a question asks for, from 0 to 1: the best share of a row's label.

    Words of the question count fully, those that a report uses for them a little less, and a label counts only if it
    has nearly no others. Labels of one word are weak, because many tables have them.
    """
    if not text.startswith("|") and "\n|" not in text:
        return 0.0
    return max((_match_label(asked, label) for label in _ROW_LABEL.findall(text)), default=0.0)


def match_label(question: str, label: str) -> float:
    """How well a row with this label is what a question asks for, from 0 to 1; see `match_rows`.

    A label of which a question asks for one word, as "Total Northquay" has the name of the company, is weak.
    """
    asked = _read_cached(question)
    return _match_label(asked, label) * (1.0 if len(_needed_terms(asked, label)) > 1 else _ONE_WORD_SHARE)


@lru_cache(maxsize=256)
def _read_cached(question: str) -> QuestionFields:
    return read_question(question)


def _match_label(asked: QuestionFields, label: str) -> float:
    terms, needed = _label_terms(label), _needed_terms(asked, label)
    known = len(needed & asked.terms) + _RELATED_SHARE * len((needed & asked.related_terms) - asked.terms)
    if not needed or known < _MIN_LABEL_SHARE * len(needed):
        return 0.0
    return known / len(needed) * (1.0 if len(terms) > 1 else _ONE_WORD_SHARE)


def _needed_terms(asked: QuestionFields, label: str) -> frozenset[int]:
    """The terms of a label that a question must have, none if it asks for no amount."""
    return _label_terms(label) - (_PASSING_TERMS - asked.terms) if asked.terms else frozenset()


@lru_cache(maxsize=16_384)
def _label_terms(label: str) -> frozenset[int]:
    """The terms of a row's label without what qualifies it, none for a label such as "Total"."""
    name = _LABEL_TAIL.sub("", label)
    terms = frozenset(extract_terms(name)) if _LETTER.search(name) else frozenset[int]()
    return terms if terms - _GENERAL_TERMS else frozenset()


def _list_names(question: str) -> list[str]:
    """Runs of up to four words of a question, squeezed; a possessive ending is left out."""
    words = _WORD.findall(re.sub(r"['’]s\b", "", question.casefold()))
    return [
        "".join(words[at : at + size]) for size in range(1, _MAX_NAME_WORDS + 1) for at in range(len(words) - size + 1)
    ]
