"""Finds the lines of an article that are not part of its story: datelines, notes, bylines, captions, teasers and more.

`find_boilerplate` returns their offsets, so that the stored text stays whole. The rules are data; `RepeatedLines` adds
lines that a source repeats in unrelated articles.
"""
# ruff: noqa: E501 - a rule reads best on one line

import re
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from hashlib import blake2b

from contexture.text.segmentation import TextRange, split_sentences
from contexture.text.terms import extract_terms


class BoilerplateKind(StrEnum):
    """What a piece of boilerplate is."""

    DATELINE = "dateline"
    NOTE = "note"
    BYLINE = "byline"
    CAPTION = "caption"
    TEASER = "teaser"
    NEWSLETTER = "newsletter"
    PLAYER = "player"
    LEGAL = "legal"
    SHARE = "share"
    REPEATED = "repeated"


class RuleScope(StrEnum):
    """Where the pattern of a rule must match, and what is marked then."""

    LINE = "line"
    """The beginning of a line; the whole line is marked."""
    WHOLE_LINE = "whole_line"
    """All of a line, which is marked."""
    PREFIX = "prefix"
    """The beginning of one of the first lines; only what matches is marked."""
    HEAD_LINE = "head_line"
    """All of a line before the first sentence of the story; the line is marked."""
    SENTENCE = "sentence"
    """Anywhere in a sentence, which is marked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BoilerplateRule:
    """One pattern, where it must match, and what it finds; a line longer than `longest` characters never matches."""

    kind: BoilerplateKind
    scope: RuleScope
    pattern: re.Pattern[str]
    longest: int = 600


def _rule(
    kind: BoilerplateKind, scope: RuleScope, pattern: str, *, longest: int = 600, cased: bool = False
) -> BoilerplateRule:
    flags = re.VERBOSE | (re.NOFLAG if cased else re.IGNORECASE)
    return BoilerplateRule(kind=kind, scope=scope, pattern=re.compile(pattern, flags), longest=longest)


_DASH = r"(?:[—–―-]{1,3})"
_AGENCY = (
    r"(?:CNN(?:\ ?Business)?|AP|Reuters|AFP|UPI|BBC(?:\ News)?|Bloomberg(?:\ News)?|Xinhua|DPA|dpa|EFE|ANSA|PTI|ANI|IANS|Kyodo"
    r"|NBC\ News|CBS\ News|ABC\ News|Fox\ News|NPR|PA|TASS|Interfax|The\ Associated\ Press|Associated\ Press|USA\ TODAY)"
)
_NAME_WORD = r"[A-Z][\w.'’-]*"
_NAMES = rf"{_NAME_WORD}(?:[ ,]+(?:{_NAME_WORD}|of|the|to|for|and|[|&–-])){{0,11}}"
_PLACE = rf"{_NAME_WORD}(?:[ /]{_NAME_WORD}){{0,3}}(?:,[ ]{_NAME_WORD}(?:[ ]{_NAME_WORD}){{0,3}}){{0,2}}"
_UPPER_PLACE = rf"[A-Z][A-Z.'’-]+(?:[ ][A-Z.'’-]+){{0,3}}(?:,[ ]{_NAME_WORD}(?:[ ]{_NAME_WORD}){{0,3}}){{0,2}}"
_COUNTRY = (
    "Afghanistan|Argentina|Australia|Bangladesh|Belarus|Belgium|Brazil|Canada|Chile|China|Colombia|Cuba|Egypt|England|Ethiopia|Finland|France|Germany|Greece|Haiti"
    "|Hungary|India|Indonesia|Iran|Iraq|Ireland|Israel|Italy|Japan|Jordan|Kenya|Lebanon|Mexico|Netherlands|Nigeria|North[ ]Korea|Norway|Pakistan|Peru|Philippines"
    "|Poland|Qatar|Romania|Russia|Saudi[ ]Arabia|Scotland|Serbia|South[ ]Africa|South[ ]Korea|Spain|Sri[ ]Lanka|Sudan|Sweden|Switzerland|Syria|Taiwan|Thailand|Turkey"
    "|Ukraine|Venezuela|Vietnam|Yemen"
)
_MONTH = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_RU_CITY = r"[А-ЯЁ][А-Яа-яЁё.-]*(?:[ ][А-ЯЁ][А-Яа-яЁё.-]*){0,3}"
_RU_UPPER_CITY = r"[А-ЯЁ][А-ЯЁ-]+(?:[ ][А-ЯЁ-]+){0,3}"
_RU_MONTH = r"(?:янв|фев|мар|апр|ма[йя]|июн|июл|авг|сен|окт|ноя|дек)[а-яё]*\.?"
_RU_DAY = rf"\d{{1,2}}[ ]{_RU_MONTH}(?:[ ](?:19|20)\d\d(?:[ ]?г(?:ода|\.)?)?)?"
_RU_AGENCY = (
    r"(?:ТАСС|РИА[ ]Новости|Интерфакс[\w.-]*|Interfax[\w.-]*|INTERFAX[\w.-]*|ПРАЙМ|Прайм|РБК|Регнум|REGNUM|Лента\.ру|"
    r"БЕЛТА|БелТА|Росбалт|АГН[ ].Москва.|Спутник|Sputnik|Рейтер|Reuters|ИНТЕРФАКС[\w.-]*|КазТАГ|NUR\.KZ|Коммерсантъ?)"
)
_RU_NAME = r"[А-ЯЁ][а-яё-]+[ ][А-ЯЁ][а-яё-]+"

D, N, B, C, T, W, P, L, S = (
    BoilerplateKind.DATELINE,
    BoilerplateKind.NOTE,
    BoilerplateKind.BYLINE,
    BoilerplateKind.CAPTION,
    BoilerplateKind.TEASER,
    BoilerplateKind.NEWSLETTER,
    BoilerplateKind.PLAYER,
    BoilerplateKind.LEGAL,
    BoilerplateKind.SHARE,
)
LINE, WHOLE, PREFIX, HEAD, SENTENCE = (
    RuleScope.LINE,
    RuleScope.WHOLE_LINE,
    RuleScope.PREFIX,
    RuleScope.HEAD_LINE,
    RuleScope.SENTENCE,
)

ENGLISH_RULES: tuple[BoilerplateRule, ...] = (
    # Alone on a line: London CNN —
    _rule(D, WHOLE, rf"(?:{_PLACE}[ ,]+)?\(?{_AGENCY}\)?\s*{_DASH}", longest=90, cased=True),
    # Before a sentence: London CNN — The, NEW YORK (AP) — The, (CNN) The
    _rule(D, PREFIX, rf"(?:{_PLACE}[ ,]+)?{_AGENCY}\s*[—–]\s*", cased=True),
    _rule(D, PREFIX, rf"(?:{_PLACE}[ ,]+)?(?:{_MONTH.replace('jan', '[Jj]an')}[ ]\d{{1,2}}[ ,]+)?\({_AGENCY}\)\s*(?:{_DASH}\s*)?", cased=True),
    _rule(D, PREFIX, rf"(?:{_PLACE},[ ])?[A-Z][a-z]{{2,8}}\.?[ ]\d{{1,2}}(?:,[ ]\d{{4}})?[ ]\([A-Z][\w. ]{{1,30}}\)\s*{_DASH}\s*", cased=True),
    _rule(D, PREFIX, rf"(?:{_PLACE}[ ,]+)?\([A-Z]{{2,6}}[ ][A-Z][a-z]+\)\s+(?=[A-Z])", cased=True),
    _rule(D, PREFIX, rf"{_UPPER_PLACE}(?:[ ]\([A-Z][\w.& ]{{1,30}}\))?\s*(?:[—–]|--)\s*", cased=True),
    _rule(D, PREFIX, r"\((?:[A-Z][\w.&]*)(?:[ ][A-Z][\w.&]*){0,2}\)\s*[—–-]{1,2}\s*", cased=True),
    _rule(D, PREFIX, rf"{_NAME_WORD}(?:[ ]{_NAME_WORD}){{0,2}},[ ]{_NAME_WORD}(?:[ ]{_NAME_WORD})?\s+[—–]\s+(?=[A-Z])", cased=True),
    # Of which the agency is lost: Seoul, South Korea North Korean leader
    _rule(D, PREFIX, rf"{_NAME_WORD}(?:[ ]{_NAME_WORD})?,[ ](?:{_COUNTRY})[ ]+(?=[A-Z])", cased=True),
    # Notes of the editors
    _rule(N, LINE, r"[\[(*_ ]*(?:editors?['’]?s?['’]?\ note|note\ to\ (?:readers|editors|viewers)|publisher['’]s\ note|disclaimer|clarification"
                   r"|corrections?(?:\ (?:and|&)\ clarifications?)?|trigger\ warning|spoiler\ alert|warning)\s*[:–—]", longest=1_200),
    _rule(N, SENTENCE, r"^[\[(*_ ]*(?:an?\ )?(?:earlier|previous|original|prior)?\s*version\ of\ this\ (?:story|article|report|newsletter|column)\b"),
    _rule(N, SENTENCE, r"\bthis\ (?:story|article|page|post|report|headline|file|live\ blog|story\ and\ headline|article\ and\ headline)\ "
                       r"(?:has|have|had|was|were|is)\ (?:also\ )?(?:been\ )?(?:updated|corrected|originally\ published|first\ published|being\ updated|developing)"),
    _rule(N, SENTENCE, r"^this\ (?:story|article|column|report|episode)\ is\ (?:a\ )?part\ of\b(?=.*(?:\bseries\b|newsletter|project|collaboration|coverage|partnership))|^it\ (?:has|have)\ (?:since\ )?been\ (?:updated|corrected|republished)\b"),
    _rule(N, LINE, r"[A-Z].{10,400}\b(?:views|opinions)\ expressed\ (?:in\ this|here|are)\b"),
    _rule(N, SENTENCE, r"^(?:this\ is\ a\ (?:developing|breaking)\ (?:news\ )?(?:story|report)|check\ back\ for\ updates|stay\ with\ us\ for\ updates|more\ (?:details\ )?to\ (?:come|follow))"),
    _rule(N, SENTENCE, r"^[\[(]?the\ (?:views|opinions)\ expressed\ (?:in\ this|here|are)\b"),
    _rule(N, WHOLE, r"(?:last\ )?updated(?:\ (?:on|at))?[: ]+(?=.*\d)[\w\s,.:/()|-]{4,50}", longest=70),
    _rule(N, WHOLE, r"published(?:\ (?:on|at))?[: ]+(?=.*\d)[\w\s,.:/()|-]{4,50}", longest=70),
    _rule(N, WHOLE, r"\d{1,2}\ min(?:ute)?s?\ read", longest=30),
    # Bylines
    _rule(B, WHOLE, rf"[Bb][Yy]:?[ ]{_NAME_WORD}(?:[ ,|&]+(?:and[ ]|[A-Z][\w.'’@-]*)|[ ]of[ ]|[ ]for[ ])*.{{0,60}}?(?<![.!?])", longest=140, cased=True),
    _rule(B, LINE, r"(?:contributing|contributors?|reporting|editing|story|written|edited|produced|compiled|additional\ reporting|with\ reporting|analysis|video|graphics?)\ ?"
                   r"(?:\ by\ |:\ ?)(?=[A-Z]).{0,300}$"),
    _rule(B, SENTENCE, r"\bcontributed\ (?:to\ this\ (?:report|story|article)|(?:additional\ )?reporting)\b"),
    _rule(B, SENTENCE, r"^\(?(?:additional\ )?reporting\ by\ .*"),
    _rule(B, WHOLE, rf"{_DASH}[ ]?{_NAMES}(?:[ ]contributed[ ]reporting)?\.?", longest=120, cased=True),
    _rule(B, WHOLE, rf"(?:From|Special[ ]to)[ ]{_NAMES}(?:[ ]and[ ]wire[ ]reports)?", longest=120, cased=True),
    _rule(B, WHOLE, r"(?:the\ )?(?:associated\ press|reuters|ap|afp|agence\ france-presse|staff\ (?:writer|reporter|and\ wire\ reports)|staff\ report|usa\ today(?:\ (?:sports|network))?)\.?", longest=60),
    _rule(B, HEAD, rf"{_NAMES}", longest=100, cased=True),
    _rule(B, LINE, r"follow\ (?:[\w.'’-]+\ ){1,5}on\ (?:twitter|x|instagram|facebook|threads|bluesky)\b"),
    _rule(B, SENTENCE, r"\b(?:follow|reach|contact|email|tweet)\ (?:him|her|them|me|us|the\ (?:author|reporter))\ (?:on|at|via)\b|^(?:contact|email)\ [\w.'’ -]{3,40}\ at\ \S+@"),
    _rule(B, LINE, r"[A-Z][\w.'’-]+(?:[ ][A-Z][\w.'’-]+){1,3}[ ]is[ ](?:an?|the)[ ](?:[\w-]+[ ]){0,6}(?:reporter|correspondent|columnist|contributor|writer|editor|producer)\b(?=.{0,200}$)", cased=True, longest=300),
    # Captions and credits
    _rule(C, LINE, r"[\[(]?(?:file\ )?(?:photos?|images?|pictures?|illustrations?|photographs?|graphics?|screenshots?|captions?|credits?|pictured|video)\s*(?:\ by\b|\ credits?|\ courtesy|\ illustration|\ from)?\s*[:/©]"),
    _rule(C, LINE, r"[\[(]?(?:(?:file|handout|undated|aerial|stock)\ (?:photo|image|picture)|photo\ by|photo\ illustration|image\ courtesy|courtesy\ of)\b.{0,300}$"),
    _rule(C, LINE, r"(?:in\ )?this\ (?:[\w,.-]+\ ){0,5}(?:file\ |aerial\ |handout\ |undated\ |satellite\ |combination\ )?(?:photo|image|picture|photograph|frame\ grab|video\ grab|aerial\ view|combination)(?:\ (?:taken|provided|made|released|shows|from)|,)"),
    _rule(C, LINE, rf"{_UPPER_PLACE}\s*{_DASH}\s*(?:JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC)[A-Z]*\.?\s+\d{{1,2}}\b", cased=True, longest=1_500),
    # Credits before a caption: Ivar Lund/AFP/Getty Images A ferry leaves
    _rule(C, LINE, rf"{_NAME_WORD}(?:[ ]{_NAME_WORD}){{0,4}}/(?:[\w ]{{2,30}}/)?(?:AP|AFP|EPA|Reuters|Getty(?:[ ]Images)?|Shutterstock|Bloomberg|Zuma|SIPA|TASS|Sputnik|Anadolu(?:[ ]Agency)?|NASA)\b[/\w ]{{0,40}}", cased=True),
    # As picture agencies end a caption: at a gas station in Oslo, Friday, May 3, 2026.
    _rule(C, WHOLE, rf".{{20,300}},\ (?:(?:on\ )?(?:mon|tues|wednes|thurs|fri|satur|sun)day,\ )?{_MONTH}\ \d{{1,2}},\ \d{{4}}\.?(?:\s*\(.{{0,80}}\))?", longest=420),
    # As they write of a picture: speaks in Oslo on May 3, 2026
    _rule(C, LINE, rf"(?!.*\b(?:said|says|told|will|would|announced|according\ to)\b).{{0,250}}?(?<!\bto\ )\b(?:poses?|gestures|speaks|attends|arrives?|walks|stands?|waits?|waves|looks?|sits?|listens?|smiles|watch(?:es)?|holds?|addresses|takes\ questions"
                   rf"|(?:is|are)\ (?:displayed|seen|shown|pictured))\b.{{0,200}}(?<!until\ )(?<!since\ )(?<!by\ )(?<!through\ )\b{_MONTH}\ \d{{1,2}},\ \d{{4}}\b", longest=420),
    # The same without a year, of persons without a name: A man carries supplies in Oslo on May 3.
    _rule(C, WHOLE, rf"(?!.*\b(?:said|says|told|will|would|was|were|had|has|have|announced|according\ to|after|because|since|until)\b)"
                    rf"(?:An?|People|Children|Residents|Crowds|Mourners|Soldiers|Firefighters|Rescuers|Workers|Volunteers|Supporters|Protesters|Demonstrators|Passengers|Migrants|Police\ officers)\ "
                    rf"(?:[\w'’-]+\ ){{0,5}}?(?:[a-z]+s|run|walk|stand|sit|wait|watch|hold|carry|celebrate|gather|look|march|protest|near|take|light|pray|search|work|wave|fight)\ [^.!?]{{10,200}}"
                    rf",?\ (?:on\ )?(?:(?i:mon|tues|wednes|thurs|fri|satur|sun)day|{_MONTH}\ \d{{1,2}})\.", longest=280, cased=True),
    _rule(C, WHOLE, rf"(?!.*\b(?:said|says|told|will|would)\b).{{5,150}}\b(?:poses?|gestures|waves|greets?|shakes?\ hands|(?:is|are)\ (?:seen|pictured|shown))\ [^.!?]{{5,150}}\ (?:on\ )?{_MONTH}\ \d{{1,2}}\.", longest=320),
    # Of galleries, whose captions stand in one line with their numbers or credits
    _rule(C, LINE, r".*?\bhide\ caption\ \d+\ of\ \d+\b", longest=50_000),
    _rule(C, LINE, r"(?:.{5,400}?(?:/(?:AP|AFP|EPA|Reuters|Getty\ Images)|\ for\ CNN)\ (?=[A-Z])){2}", cased=True, longest=50_000),
    _rule(C, WHOLE, r".{10,300}\ courtesy\ of\ [^.]{3,60}", longest=360),
    _rule(C, SENTENCE, r"\(?(?:photo|image|picture|video|illustration)s?\ (?:by|credit|courtesy)\b[^.]{0,120}\)?\.?$"),
    _rule(C, SENTENCE, r"(?:/|\bvia\ |^|\()(?:getty(?:\ images)?|afp|ap(?:\ photo)?|reuters|shutterstock|istock|alamy|epa|zuma|tns|usa\ today\ sports|bloomberg|adobe\ stock|unsplash|anadolu(?:\ agency)?)(?:/[\w .]+)?\)?\.?$"),
    _rule(C, WHOLE, r".{0,330}(?:/getty\ images|/ap\ photo|/shutterstock|via\ getty|/afp|/reuters|/file)\.?\)?", longest=380),
    # Teasers
    _rule(T, WHOLE, r"(?:[>»→•*\s]*)(?:read|see|learn|view|show|load|find\ out)\ (?:more|also|full\ (?:story|article)|next|it\ here)(?:\ (?:here|stories|»|→))?[.…>»→ ]*", longest=60),
    _rule(T, LINE, r"[>»→•*\s]*(?:read\ (?:more|also|next|this|the\ full\ story)|related(?:\ (?:article|content|stories|story|coverage|link|video))?|see\ (?:also|more)|also\ (?:read|see|watch|on)|more(?:\ (?:from|on|about)\b[^:]{0,40})?"
                   r"|watch(?:\ (?:more|live|now|this))?|listen(?:\ (?:now|here|to))?|up\ next|don['’]t\ miss|recommended(?:\ for\ you)?|for\ (?:our\ )?subscribers(?:\ only)?|subscribers\ only|you\ (?:may|might)\ (?:also\ )?like"
                   r"|in\ (?:pictures|photos|case\ you\ missed\ it)|photos|gallery|explainer|fact\ check|opinion|live\ updates|top\ stories|trending|must\ (?:read|see|watch)|go\ deeper|what\ to\ know)\s*[:|»→]\s*\S(?!.*[.]$)"),
    _rule(T, LINE, r"(?:READ|WATCH|MORE|SEE|LISTEN|RELATED|OPINION|ANALYSIS|PHOTOS|VIDEO|GALLERY|SUBSCRIBERS|EXPLAINER|FACT\ CHECK|ICYMI)(?:\ (?:MORE|ALSO|NEXT|LIVE|NOW|HERE))?\s*:", cased=True),
    _rule(T, LINE, r"(?:More|Related|Opinion|Read\ more|Fact\ check|Live\ updates|Explainer):(?=\S)", cased=True),
    _rule(T, LINE, rf"(?:[\w-]+\ ){{0,3}}(?:reporter|correspondent)\ {_NAME_WORD}\ {_NAME_WORD}\ (?:reports|explains|looks\ (?:at|into))\b"),
    # A link to another article, whose label has no space behind its colon; and the title of a video
    _rule(T, WHOLE, r"[^:]{2,90}[^\W\d]['’”\"?!.)]?:(?=[A-Z0-9'\"“‘])(?!\d\d\b).{12,240}(?<![.!:])(?<![.!?]['’”\"])", cased=True, longest=340),
    _rule(T, WHOLE, r".{10,160}[.?!]['’”\"]?\ (?:hear|see|watch|listen\ to|find\ out)\ (?:what|how|why|who|where|when|the|his|her|their)\b[^.!?]{3,100}", longest=280),
    _rule(T, SENTENCE, r"^(?:click|tap|go|head|scroll|swipe)\ (?:here|below|down|through)\b|\b(?:click|tap)\ here\ (?:to|for)\b|^(?:read|see|find|view)\ (?:the|our)\ (?:full|complete|latest)\ [\w ]{3,40}\ here\b"),
    _rule(T, SENTENCE, r"^(?:to\ )?(?:find|read|see|learn)\ more\ (?:about|on|of|stories|recalls|news|coverage|at)\b.{0,120}\b(?:visit|here|database|website|click)"),
    _rule(T, SENTENCE, r"^(?:check\ your\ local\ forecast|take\ (?:our|\w+['’]s)\ (?:weekly\ |daily\ )?news\ quiz|here['’]s\ what\ (?:else\ )?you\ need\ to\ know\ to\b)"),
    _rule(T, WHOLE, r"(?:\W*)(?:advertisement|sponsored(?:\ content)?|promoted|ad|skip\ (?:to\ (?:main\ )?content|advertisement)|story\ continues\ below.*|continue\ reading.*|this\ advertisement\ has\ not\ loaded.*)\W*", longest=90),
    # Newsletters and subscriptions
    _rule(W, LINE, r"[\[(*\s]*(?:sign\ up|subscribe|register|join|get|enjoying|want|like\ what|what['’]s\ everyone\ talking|space\ is\ important)\b.{0,160}\b(?:newsletters?|inbox|mailing\ list|e-?mail\ alerts?|text\ messages|podcast|breaking\ news\ alerts?)\b"),
    _rule(W, SENTENCE, r"\b(?:sign\ up|subscribe|signing\ up)\b.{0,120}\b(?:newsletters?|inbox|here|daily\ updates|alerts?|e-?mail)\b|\bdelivered\b.{0,60}\binbox\b|\bnewsletters?\b.{0,60}\b(?:sign\ up|subscribe|here)\b"),
    _rule(W, SENTENCE, r"^if\ your\ day\ doesn['’]t\ start\ until\b|\bthe\ [\w' ]{2,30}\ newsletter\ (?:provides|brings|is)\b|^this\ is\ (?:the|an?)\ [\w ]{0,20}edition\ of\b|^welcome\ to\ [\w'’ ]{2,60}\ newsletter\b|\baudio\ version\ of\b|\bby\ clicking\ (?:the|this|here)\b|^(?:turn|tune\ in)\ to\ [\w ]{2,30}\ for\ (?:live\ )?coverage\b|^would\ you\ like\ to\ receive\b"),
    _rule(W, SENTENCE, r"\b(?:become|becoming)\ an?\ [\w ]{0,30}subscriber\b|\bsupport\ (?:it|us|this\ work)\ with\ a\ subscription\b|\bbecome\ a\ member\ (?:today|now|here)\b|\b(?:support|supporting)\ our\ (?:journalism|work|newsroom)\b|\bdownload\ (?:our|the)\ (?:[\w ]{0,20})app\b"),
    _rule(W, SENTENCE, r"^share\ your\ (?:thoughts|story|experience)\b|^(?:are|have|do|did)\ you\b.{0,140}\bshare\ your\b|\bif\ you\ don['’]t\ see\ the\ form\b|\bon\ the\ form\ below\b"),
    _rule(W, SENTENCE, r"\bwe['’]re\ working\ to\ bring\ you\b|\bjournalism\ like\ this\ (?:takes|costs|needs)\b"),
    # Players
    _rule(P, WHOLE, r"(?:must\ watch|now\ playing|just\ watched)\ .{5,200}\ \d{1,2}:\d\d", longest=260),
    _rule(P, LINE, r"(?:\d\.\ )?(?:how\ relevant\ is\ this\ ad|did\ you\ encounter\ any\ technical\ issues|video\ player\ was\ slow|video\ (?:content\ )?never\ loaded|ad\ (?:froze|never\ loaded|feedback)|video\ ad\ feedback|content\ never\ loaded)"),
    _rule(P, WHOLE, r"(?:now\ playing|just\ watched|must\ watch|replay|live\ tv|play(?:\ video|\ audio)?|watch\ (?:live|now|video)|listen(?:\ to\ (?:this|the)\ (?:article|story))?|mute|unmute|autoplay|close|cancel|submit|loading|source:\ \w+|\d{1,2}:\d{2}(?:\s*[-–]\s*source:.*)?)[.…]*", longest=80),
    # Cookies, rights and conditions
    _rule(L, SENTENCE, r"\b(?:uses?|accept(?:ing)?|manage|reject)\ (?:all\ |our\ |your\ |these\ )?cookies?\b|\bcookie\ (?:policy|settings|preferences|notice)\b|^by\ (?:continuing|clicking|signing|using|subscribing)\b.{0,120}\b(?:agree|accept|consent)\b"),
    _rule(L, SENTENCE, r"\ball\ rights\ reserved\b|^(?:©|\(c\)|copyright)\s|\b(?:may|must)\ not\ be\ (?:published|reproduced|redistributed)\b|\bterms\ of\ (?:use|service)\ and\ privacy\ policy\b"),
    _rule(L, SENTENCE, r"\bwe\ will\ use\ the\ (?:details|information)\ you\ have\ shared\b|\bour\ privacy\ policy\b|\bplease\ tick\ here\b|\bas\ detailed\ here\b|\bprocessing,\ storage,\ sharing\b"),
    _rule(L, LINE, rf"{_DASH}?\s*(?:recommendations\ are\ independently\ chosen|purchases\ (?:you\ make\ )?through\ our\ links|we\ may\ (?:earn|receive)\ (?:a\ )?commission|this\ (?:article|post|page)\ (?:may\ )?contains?\ affiliate)"),
    _rule(L, SENTENCE, r"\bis\ made\ possible\ (?:in\ part\ )?by\ a\ grant\b|\bdoes\ not\ provide\ editorial\ input\b"),
    # Sharing
    _rule(S, WHOLE, r"(?:share(?:\ (?:on|this|via|to|with)\ ?.*)?|tweet(?:\ this)?|e-?mail(?:\ this)?|print(?:\ this)?|copy\ link|save|bookmark|comments?(?:\ \(?\d+\)?)?|leave\ a\ comment|show\ comments|join\ the\ (?:conversation|discussion)|\d+\ (?:comments?|shares?)"
                     r"|facebook|twitter|whatsapp|linkedin|pinterest|reddit|flipboard|telegram)[.…!]*", longest=70),
    _rule(S, LINE, r"(?:follow|like|find|join)\ us\ on\b|share\ (?:this|on)\ (?:article|story|post|facebook|twitter|x|whatsapp)\b"),
)  # fmt: skip
"""Rules for English; a pattern is anchored at the start of what its scope names, except in sentences."""

RUSSIAN_RULES: tuple[BoilerplateRule, ...] = (
    # The forms of TASS, RIA Novosti and Interfax, with and without a place and a day
    _rule(D, PREFIX, rf"(?:{_RU_CITY}[,.]?[ ])?(?:{_RU_DAY}[.,]?[ ])?/(?:Корр\.[ ])?{_RU_AGENCY}(?:[, ][^/]{{0,40}})?/[.,]?\s*(?:{_DASH}\s*)?"),
    _rule(D, PREFIX, rf"(?:{_RU_CITY}[,.][ ])?{_RU_DAY}[.,]?\s*(?:{_DASH}\s*)?{_RU_AGENCY}(?:,[ ]{_RU_NAME}(?:,[ ]{_RU_NAME})*)?\s*(?:[.]|{_DASH})\s*", cased=True),
    _rule(D, PREFIX, rf"(?:{_RU_CITY}[,.]?[ ])?(?:{_RU_DAY}[.,]?[ ])?\({_RU_AGENCY}\)\s*(?:[.]|{_DASH})?\s*", cased=True),
    _rule(D, PREFIX, rf"{_RU_UPPER_CITY},[ ]{_RU_DAY}\s*(?:[.]|{_DASH})\s*", cased=True),
    _rule(D, PREFIX, rf"{_RU_CITY}\.[ ]{_RU_DAY}\.\s*", cased=True),
    _rule(D, PREFIX, rf"(?:{_RU_CITY},[ ])?{_RU_DAY},[ ]\d{{1,2}}:\d\d\s*{_DASH}\s*(?:{_RU_AGENCY}[.,]?\s*(?:{_DASH}\s*)?)?", cased=True),
    _rule(D, PREFIX, rf"{_RU_AGENCY}\s*[—–]\s+(?=[А-ЯЁ])", cased=True),
    _rule(D, WHOLE, rf"(?:{_RU_CITY}[,.]?[ ])?(?:{_RU_DAY}[.,]?[ ]?)?(?:{_DASH}[ ]?)?/?{_RU_AGENCY}/?[.]?\s*{_DASH}?", longest=80),
    _rule(D, WHOLE, rf"{_RU_DAY}(?:,?[ ](?:в[ ])?\d{{1,2}}:\d\d)?|\d{{1,2}}:\d\d,?[ ]{_RU_DAY}|\d{{1,2}}\.\d\d\.(?:19|20)?\d\d(?:,?[ ]\d{{1,2}}:\d\d)?", longest=50),
    _rule(N, LINE, r"[\[(*_\ ]*(?:от\ редакции|примечание(?:\ редакции)?|прим\.\ ред\.?|поправка|уточнение|исправление|исправлено|внимание|дисклеймер|важно)\s*[:.–—]", longest=1_200),
    _rule(N, SENTENCE, r"\b(?:материал|новость|статья|текст|заметка|публикация)\ (?:был[аи]?\ )?(?:обновл[её]н|дополн[её]н|дополняется|обновляется|исправлен)[аоы]?\b|\b(?:первоначальная|более\ ранняя|предыдущая)\ версия\ (?:этого\ )?(?:материала|текста|статьи)"),
    _rule(N, WHOLE, r"(?:обновлено|опубликовано|дата\ публикации)[: ]+.{3,40}", longest=60),
    _rule(N, WHOLE, r"время\ (?:на\ )?(?:чтени[ея]|прочтения)[: ]+.{1,20}|\d{1,2}\ мин(?:ут[аы]?|\.)?\ (?:на\ )?чтени[ея]", longest=50),
    _rule(B, LINE, r"(?i:автор(?:ы)?(?:\ (?:текста|статьи|материала))?|текст|редактор|корреспондент|над\ материалом\ работали|подготовил[аи]?|беседовал[аи]?)\s*[:–—]\s*(?=[А-ЯЁ]).{3,120}$", longest=140, cased=True),
    _rule(B, WHOLE, rf"(?i:авторы?|текст|корреспондент|редактор)[ ]{_RU_NAME}(?:(?:,[ ]|[ ]и[ ]){_RU_NAME})*", longest=110, cased=True),
    _rule(B, WHOLE, rf"{_RU_NAME}(?:\s*[|,/]\s*{_RU_NAME}){{1,3}}", longest=110, cased=True),
    _rule(B, LINE, rf"(?i:подготовил[аи]?|беседовал[аи]?|записал[аи]?|перев[её]л[аи]?)[ ]{_RU_NAME}[.]?$", longest=90, cased=True),
    _rule(B, WHOLE, rf"{_RU_NAME}(?:,[ ](?:корреспондент|обозреватель|журналист|специальный[ ]корреспондент|редактор|собкор)\b.{{0,60}})?", longest=110, cased=True),
    _rule(B, WHOLE, rf"{_RU_AGENCY}[.]?", longest=40),
    _rule(C, LINE, r"[\[(]?(?:фото(?:графи[яи])?|иллюстраци[яи]|снимок|инфографика|видео|скриншот|источник\ (?:фото|изображения)|кадр\ из)(?:\ (?:автора|из\ архива|архив|предоставлено|пресс-службы|с\ сайта))?\s*[:©/–—]"),
    _rule(C, WHOLE, r"(?:купить\ фото|открыть\ фото|увеличить|фотогалерея|развернуть\ на\ весь\ экран|на\ весь\ экран)[.…]*", longest=40),
    _rule(C, LINE, r"[\[(]?(?:на\ (?:фото|снимке|фотографии|видео)\b|архивное\ фото|фото\ из\ (?:архива|открытых\ источников)|фото\ (?:носит\ иллюстративный|предоставлен))"),
    _rule(C, LINE, r"©\s?\S.{0,160}$|.{0,160}/\s?(?:ТАСС|РИА\ Новости|Коммерсантъ|РБК|Reuters|AFP|AP|Getty\ Images)\.?\)?$", longest=220),
    _rule(T, LINE, r"[>»→•*\s]*(?:читайте(?:\ также|\ ещ[её]|\ по\ теме|\ подробнее)|смотрите(?:\ также)?|см\.\ также|по\ теме|материалы?\ по\ теме|ещ[её]\ по\ теме|ранее\ по\ теме|также\ по\ теме|подробнее|главное|другие\ новости|новости\ по\ теме|рекомендуем|популярное|сюжет|читать\ (?:далее|полностью|также|ещ[её]))\s*[:»→|—]"),
    _rule(T, WHOLE, r"[>»→•*\s]*(?:читайте\ также|смотрите\ также|по\ теме|материалы\ по\ теме|подробнее|читать\ (?:далее|полностью|подробнее)|ещ[её]|главное\ (?:за\ день|сейчас)|популярное|реклама|на\ правах\ рекламы|партн[её]рский\ материал|новости\ (?:сми2?|партн[её]ров|mail\.ru)|хроника(?:[ ]дня)?|\d{1,2}\+)[.…:»→ ]*", longest=60),
    _rule(T, WHOLE, rf"хроника\ {_RU_DAY}", longest=60),
    _rule(T, LINE, r"реклама\b(?:[.:]|\ на\b).{0,160}$|.{0,160}\berid\b.{0,60}$|отвлекает\ реклама\b", longest=260),
    _rule(T, SENTENCE, r"^(?:подробнее|больше)\b.{0,80}\b(?:в\ (?:нашем\ )?(?:материале|сюжете|статье|репортаже|telegram|телеграм))|^читайте\ (?:также|об\ этом|подробнее)\b"),
    _rule(W, SENTENCE, r"\b(?:подпишитесь|подписывайтесь|подписаться|присоединяйтесь|вступайте)\b.{0,120}|^(?:читайте|смотрите)\ нас\b|^(?:следите\ за|оставайтесь\ (?:с\ нами|на\ связи))\b|\bнаш(?:ем|их|\ )?\ ?(?:telegram|телеграм)[\w-]*\b|\b(?:новости|главное|вс[её]\ (?:самое\ )?(?:важное|интересное))\b.{0,40}\bв\ (?:telegram|телеграм)[\w-]*"),
    _rule(W, LINE, r"рассылка\ .{2,40}:|мы\ в\ (?:соцсетях|telegram|телеграм|вк)\b"),
    _rule(N, SENTENCE, r"^эт(?:от|а)\ (?:материал|текст|статья)\ (?:впервые\ )?(?:вышел|вышла|опубликован[а]?)\b"),
    _rule(P, WHOLE, r"(?:видео\ недоступно|воспроизвести(?:\ видео)?|слушать(?:\ (?:новость|материал|подкаст))?|прослушать(?:\ (?:новость|статью))?|остановить\ прослушивание|смотреть\ видео|прямой\ эфир|\d{1,2}:\d{2})[.…]*", longest=60),
    _rule(L, SENTENCE, r"\b(?:используем|использует|использование)\b.{0,30}\b(?:cookies?|куки)\b|\bсогласие\ на\ обработку\b|\bполитик[аойеу]+\ конфиденциальности\b|\bвсе\ права\ защищены\b|\b(?:перепечатке|цитировании|использовании\ материалов)\b.{0,80}\b(?:ссылка|обязательна)|^(?:©|copyright)"),
    _rule(L, SENTENCE, r"^(?:использование|перепечатка|копирование)\ (?:любых\ )?материалов\b"),
    _rule(L, SENTENCE, r"\bпризнан[аоы]?\b.{0,80}\bиностранн\w+\ агент\w+|\bвнесен[аоы]?\ в\ реестр\ иностранных\ агентов"),
    _rule(S, WHOLE, r"(?:поделиться(?:[: ].{0,60})?|что\ (?:думаешь|думаете|вы\ думаете)\?(?:\ комментарии)?|скопировать\ ссылку|комментировать|комментарии(?:\ \(?\d+\)?)?|обсудить|распечатать|печать|нравится|в\ избранное|вконтакте|одноклассники|телеграм|telegram|whatsapp)[.…!]*", longest=60),
    _rule(S, SENTENCE, r"\b(?:нашли|заметили|увидели)\b.{0,20}\b(?:опечатку|ошибку)\b|\bctrl\s?\+\s?enter\b"),
)  # fmt: skip
"""Rules for Russian, with the forms that Russian agencies print."""

# A line must contain one of these before the slower patterns are tried on its sentences.
SENTENCE_HINTS = tuple(
    """version of|updated|corrected|published|developing|breaking news|breaking story|check back|for updates|to come|to follow
    |expressed|contributed|reporting by|follow |reach |contact |email|e-mail|tweet|photo|image|picture|video|illustration
    |getty|afp|ap|reuters|shutterstock|istock|alamy|epa|zuma|tns|bloomberg|unsplash|anadolu|usa today|adobe|click|tap |scroll
    |swipe|here|visit|database|website|forecast|quiz|sign|subscri|edition|audio|turn to|tune in|newsletter|inbox|day doesn|journalism|newsroom|our work
    |download|share your|form|cookie|agree|accept|consent|rights reserved|\u00a9|copyright|(c)|not be |privacy|have shared
    |tick here|storage|grant|editorial|member |материал|новость|статья|текст|заметка|публикация|версия|подробнее|больше
    |читайте|подпи|присоедин|вступайте|смотрите|следите|оставайтесь|наш|использ|согласие|политик|права|перепечат|цитирован
    |признан|внесен|опечатк|ошибк|ctrl|part of|support|вышел|вышла|telegram|телеграм|копирован""".replace(
        "\n    ", ""
    ).split("|")
)


_PREFIX_LINES = 4  # lines with text that may begin with a dateline
_LINE_BREAK = re.compile(r"\n")
_TERMINALS = ".!?…。！？"
_CLOSING_MARKS = "\"'»”’)]*"
_MIN_SENTENCE_WORDS, _MIN_UNENDED_WORDS = 4, 18


@dataclass(frozen=True, kw_only=True, slots=True)
class BoilerplateSpan:
    """Characters `start` to `end` of a text that are boilerplate, and of which kind."""

    start: int
    end: int
    kind: BoilerplateKind


def find_boilerplate(text: str, *, is_repeated: Callable[[str], bool] | None = None) -> tuple[BoilerplateSpan, ...]:
    """The boilerplate of an article's text, in order, never overlapping; everything else is the story.

    `is_repeated` says whether the source repeats a line in unrelated articles.
    """
    found: list[BoilerplateSpan] = []
    seen, story = 0, False
    for start, end in _iter_lines(text):
        line = text[start:end]
        if is_repeated is not None and is_repeated(line):
            found.append(BoilerplateSpan(start=start, end=end, kind=BoilerplateKind.REPEATED))
            continue
        spans = list(_mark_line(text, start, end, head=not story, prefixed=seen < _PREFIX_LINES))
        found += spans
        left = end - start - sum(span.end - span.start for span in spans)
        seen += bool(left)
        story = story or (left > 0 and is_sentence(text[spans[-1].end if spans else start : end]))
    return tuple(sorted((*found, *_find_gallery(text, found)), key=lambda span: span.start))


_MIN_GALLERY = 2
_DATED_LINE = re.compile(
    rf"(?!.*\b(?:said|says|told|will|would|announced|according to)\b)[^.!?]{{20,260}}\b(?:on )?{_MONTH} \d{{1,2}}\.",
)


def _find_gallery(text: str, found: Sequence[BoilerplateSpan]) -> list[BoilerplateSpan]:
    """The other captions of a gallery: lines of one sentence that end with a day, as one or more known captions do."""
    known = {span.start for span in found if span.kind is BoilerplateKind.CAPTION}
    taken = {span.start for span in found}
    dated = [(start, end) for start, end in _iter_lines(text) if _DATED_LINE.fullmatch(text, start, end)]
    if len(dated) < _MIN_GALLERY or known.isdisjoint(start for start, _ in dated):
        return []
    return [
        BoilerplateSpan(start=start, end=end, kind=BoilerplateKind.CAPTION)
        for start, end in dated
        if start not in taken
    ]


def is_sentence(text: str) -> bool:
    """Whether a text reads as a sentence and not as a heading, a name or a label.

    It has some words and ends as a sentence, or has more words than a heading and lost its full stop.
    """
    bare = text.strip().rstrip(_CLOSING_MARKS)
    words = len(bare.split())
    if bare.endswith(tuple(_TERMINALS)):
        return words >= _MIN_SENTENCE_WORDS
    return words >= _MIN_UNENDED_WORDS and not bare.endswith((":", ";", ","))


def _iter_lines(text: str) -> Iterator[TextRange]:
    """Offsets of the lines that have text, trimmed."""
    start = 0
    for stop in [*(found.start() for found in _LINE_BREAK.finditer(text)), len(text)]:
        line = text[start:stop]
        bare = line.strip()
        if bare:
            begin = start + len(line) - len(line.lstrip())
            yield begin, begin + len(bare)
        start = stop + 1


def _mark_line(text: str, start: int, end: int, *, head: bool, prefixed: bool) -> Iterator[BoilerplateSpan]:
    kind = _match_whole_line(text, start, end, head=head)
    if kind is not None:
        yield BoilerplateSpan(start=start, end=end, kind=kind)
        return
    if prefixed:
        for rule in _rules_of(RuleScope.PREFIX, text[start:end]):
            found = rule.pattern.match(text, start, end)
            if found and found.end() > start:
                yield BoilerplateSpan(start=start, end=found.end(), kind=rule.kind)
                start = found.end()
                break
    spans = list(_mark_sentences(text, start, end))
    if spans and _begins_note(spans[0], start, end):
        yield replace(spans[0], end=end)
    else:
        yield from spans


_NOTES = (BoilerplateKind.NOTE, BoilerplateKind.NEWSLETTER)
_MAX_NOTE_REST = 200  # characters after the first sentence of a note; more are a story without line breaks


def _begins_note(first: BoilerplateSpan, start: int, end: int) -> bool:
    """Whether a line begins with a note or a call to subscribe, to which a short rest of it belongs."""
    return first.kind in _NOTES and first.start == start and end - first.end <= _MAX_NOTE_REST


def _match_whole_line(text: str, start: int, end: int, *, head: bool) -> BoilerplateKind | None:
    for rule in _rules_of(_LINE_SCOPES, text[start:end]):
        if end - start > rule.longest:
            continue
        if rule.scope is RuleScope.LINE:
            matched = rule.pattern.match(text, start, end)
        elif rule.scope is RuleScope.HEAD_LINE and not head:
            matched = None
        else:
            matched = rule.pattern.fullmatch(text, start, end)
        if matched:
            return rule.kind
    return None


def _mark_sentences(text: str, start: int, end: int) -> Iterator[BoilerplateSpan]:
    line = text[start:end]
    lowered = line.lower()
    if not any(hint in lowered for hint in SENTENCE_HINTS):
        return
    open_end: BoilerplateSpan | None = None  # grows with the sentences of its kind that follow it
    for first, last in split_sentences(line):
        sentence = line[first:last]
        kind = next(
            (
                rule.kind
                for rule in _rules_of(RuleScope.SENTENCE, sentence)
                if len(sentence) <= rule.longest and rule.pattern.search(sentence)
            ),
            None,
        )
        if kind is not None and open_end is not None and kind == open_end.kind:
            open_end = replace(open_end, end=start + last)
        else:
            if open_end is not None:
                yield open_end
            open_end = None if kind is None else BoilerplateSpan(start=start + first, end=start + last, kind=kind)
    if open_end is not None:
        yield open_end


_CYRILLIC = re.compile(r"[А-Яа-яЁё]")
_LINE_SCOPES = "lines"


def _group_rules(rules: Sequence[BoilerplateRule]) -> dict[str, tuple[BoilerplateRule, ...]]:
    found: dict[str, tuple[BoilerplateRule, ...]] = {
        scope: tuple(rule for rule in rules if rule.scope is scope) for scope in RuleScope
    }
    apart = (RuleScope.PREFIX, RuleScope.SENTENCE)
    return {**found, _LINE_SCOPES: tuple(rule for rule in rules if rule.scope not in apart)}


_ENGLISH_BY_SCOPE, _ALL_BY_SCOPE = _group_rules(ENGLISH_RULES), _group_rules((*RUSSIAN_RULES, *ENGLISH_RULES))


def _rules_of(scope: str, text: str) -> tuple[BoilerplateRule, ...]:
    """The rules of a scope; those for Russian only for a text with Cyrillic letters."""
    return (_ALL_BY_SCOPE if _CYRILLIC.search(text) else _ENGLISH_BY_SCOPE)[scope]


_MIN_HOLDERS = 4  # unrelated articles of one source that repeat a line before it counts as boilerplate
_MIN_HOLDERS_OF_LONG_LINES = 8  # background paragraphs are long, and repeated too
_LONG_LINE_CHARS = 160
_LIST_NUMBER = re.compile(r"\d+[.)]\s")
_MIN_LINE_CHARS = 8
_MAX_LINE_CHARS = 600
_MAX_LINES = 20_000  # lines remembered for each source


def _line_key(line: str) -> bytes:
    return blake2b(" ".join(line.casefold().split()).encode("utf-8", "surrogatepass"), digest_size=8).digest()


@dataclass(slots=True)
class RepeatedLines:
    """Lines of one source's articles, by hash, and the articles that hold them.

    A line is repeated once at least four articles with different titles hold it and it shares no word with most of
    their titles: background paragraphs, which a source repeats too, speak of what their articles are about.
    """

    _holders: OrderedDict[bytes, dict[str, frozenset[int]]] = field(
        default_factory=OrderedDict[bytes, dict[str, frozenset[int]]]
    )
    _repeated: set[bytes] = field(default_factory=set[bytes])

    def __contains__(self, line: object) -> bool:
        return isinstance(line, str) and _line_key(line) in self._repeated

    def learn(self, article_id: str, title: str, text: str, ignored: Collection[int] = ()) -> frozenset[str]:
        """Add the lines of an article; returns the ids of earlier articles with a line that is now repeated.

        `ignored` are terms that say nothing about a title, such as the name of the source.
        """
        terms = frozenset(extract_terms(title)) - frozenset(ignored)
        changed: set[str] = set()
        for line in {text[start:end] for start, end in _iter_lines(text)}:
            if _MIN_LINE_CHARS <= len(line) <= _MAX_LINE_CHARS and not _LIST_NUMBER.match(line):
                changed |= self._add_line(line, article_id, terms)
        while len(self._holders) > _MAX_LINES:
            self._holders.popitem(last=False)
        return frozenset(changed - {article_id})

    def _add_line(self, line: str, article_id: str, title: frozenset[int]) -> set[str]:
        key = _line_key(line)
        if key in self._repeated:
            return set()
        holders = self._holders.setdefault(key, {})
        if any(_is_same_subject(title, other) for name, other in holders.items() if name != article_id):
            return set()
        holders[article_id] = title
        if len(holders) < (_MIN_HOLDERS if len(line) < _LONG_LINE_CHARS else _MIN_HOLDERS_OF_LONG_LINES):
            return set()
        said = frozenset(extract_terms(line))
        strangers = sum(said.isdisjoint(each) for each in holders.values())
        if strangers * 4 < len(holders) * 3:
            return set()
        self._repeated.add(key)
        return set(self._holders.pop(key))


def _is_same_subject(one: frozenset[int], other: frozenset[int]) -> bool:
    return not one or not other or len(one & other) * 2 >= min(len(one), len(other))
