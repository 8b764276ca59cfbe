"""The planner: reads a question about work as queries of the block store, and turns their results into facts.

Who, what, in which state, when, how many and per what, in English, Russian and German. Values are the workspace's own:
a word of the question is a filter when some column that the asker may read has that value.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from msgspec.structs import replace as changed

from contexture import workspace
from contexture.blocks.links import database_schema
from contexture.builders.workspace._spans import TimeSpan, detect_span
from contexture.builders.workspace._state import BuildState, CollectedFact
from contexture.builders.workspace.result import SectionType
from contexture.text.terms import extract_terms
from contexture.types import Candidate


def _words(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{'|'.join(patterns)})(?!\w)", re.IGNORECASE)


_TASKS = _words(
    r"(?:sub)?tasks?", r"to-?dos?", r"action items?", r"tickets?", r"work items?", r"deadlines?", r"assignments?",
    r"(?:под)?задач\w*", r"дел(?:а|о|ам)?", r"поручени\w*", r"дедлайн\w*", r"aufgaben?", r"teilaufgaben?",
)  # fmt: skip
_ME = _words(
    r"my", r"mine", r"me", r"i", r"i'm", r"мой", r"моя", r"моё", r"мои", r"моих", r"моим", r"моей", r"мне", r"меня",
    r"я", r"mein\w{0,2}", r"mir", r"mich", r"ich",
)  # fmt: skip
_DOING = _words(
    r"(?:am i|are we|is \w+) (?:working on|doing)", r"should i do", r"on my plate", r"do i (?:have|need) to do",
    r"что (?:мне )?(?:нужно |надо )?с?делать", r"над чем", r"woran", r"was (?:muss|soll) ich (?:noch )?(?:tun|machen)",
)  # fmt: skip
_COUNT = _words(
    r"how many", r"how much", r"count", r"number of", r"сколько", r"количеств\w*", r"wie ?viele?", r"anzahl"
)
_ALL = _words(
    r"all", r"every", r"each", r"which", r"what", r"list", r"show", r"who", r"whose", r"any", r"are there", r"give",
    r"все", r"всех", r"какие", r"каких", r"какая", r"кто", r"чь\w", r"что", r"покажи", r"перечисли", r"список", r"есть",
    r"alle", r"welche\w?", r"wer", r"was", r"zeige?", r"liste",
)  # fmt: skip
_OVERDUE = _words(r"overdue", r"past due", r"late", r"missed", r"просроч\w*", r"überfällig\w*", r"verspätet\w*")
_OPEN = _words(
    r"open", r"unfinished", r"outstanding", r"remaining", r"incomplete", r"not (?:yet )?(?:done|finished|completed)",
    r"still to do", r"открыт\w*", r"незаверш\w*", r"невыполн\w*", r"не (?:сделан\w*|выполнен\w*|заверш\w*|готов\w*)",
    r"offen\w*", r"unerledigt\w*",
)  # fmt: skip
_DONE = _words(
    r"done", r"completed?", r"finish(?:ed)?", r"closed", r"готов\w*", r"сделан\w*", r"сделал\w*", r"закончил\w*",
    r"заверш\w*", r"выполнен\w*", r"закрыт\w*", r"erledigt\w*", r"fertig\w*", r"abgeschlossen\w*",
)  # fmt: skip
_CHANGED = _words(
    r"changed?s?", r"edit(?:s|ed)?", r"updated?", r"modified", r"happened", r"what(?:'s| is) new", r"new since",
    r"измен\w*", r"поменял\w*", r"менял\w*", r"правил\w*", r"обновл\w*", r"обновил\w*", r"нового", r"geändert\w*",
    r"bearbeitet\w*", r"passiert", r"neues?",
)  # fmt: skip
_CHANGE_QUESTION = _words(
    r"what", r"who", r"which", r"show", r"list", r"что", r"кто", r"какие", r"покажи", r"was", r"wer"
)
_REPORT = _words(
    r"weekly (?:report|update|summary|status)", r"status (?:report|update)", r"report for (?:the|this|last) week",
    r"stand-?up (?:notes|update|report)", r"(?:еженедельн\w*|недельн\w*) отч[её]т\w*", r"отч[её]т\w* за неделю",
    r"wochenbericht\w*", r"statusbericht\w*",
)  # fmt: skip
_PER = re.compile(
    r"(?<!\w)(?:per|by|for each|for every|of each|in each|each|grouped by|breakdown (?:of|by)|по|для кажд\w+|у кажд\w+"
    r"|на кажд\w+|в кажд\w+|кажд\w+|je|pro|nach)\s+(?P<what>[\w ]{2,40})",
    re.IGNORECASE,
)
_WHO = _words(r"who", r"whom", r"кто", r"у кого", r"кому", r"wer", r"wem")
_MOST = _words(
    r"most",
    r"least",
    r"fewest",
    r"больше всего",
    r"больше всех",
    r"меньше всего",
    r"am meisten",
    r"die meisten",
    r"has",
    r"have",
)
_SUPERLATIVE = _words(
    r"most", r"least", r"fewest", r"больше всего", r"больше всех", r"меньше всего", r"меньше всех", r"am meisten",
    r"die meisten", r"am wenigsten", r"die wenigsten",
)  # fmt: skip
_PEOPLE_WORDS = re.compile(
    r"person|people|assignee|owner|member|teammate|colleague|employee|responsible|one|человек|люд|исполнител|сотрудник"
    r"|коллег|ответствен|участник|владел|mitarbeiter|zuständig|bearbeiter|besitzer",
    re.IGNORECASE,
)
_STATUS_WORDS = re.compile(
    r"status|state|stage|list|column|lane|phase|стату|состояни|стади|этап|колонк|phase", re.IGNORECASE
)
_STATUS_COLUMNS = re.compile(
    r"^(?:status|state|stage|phase|list|list[_ ]name|column|lane|статус|стадия|этап|состояние)$"
)
_QUOTED = re.compile(r"'[^'\n]{2,80}'(?!\w)|\"[^\"\n]{2,80}\"|«[^»\n]{2,80}»|“[^”\n]{2,80}”")
_TOKEN = re.compile(r"[\w][\w.@+/-]*", re.UNICODE)

_STATES: Mapping[str, tuple[re.Pattern[str], tuple[str, ...]]] = {
    "blocked": (
        _words(r"blocked", r"stuck", r"blockers?", r"заблокирован\w*", r"застрял\w*", r"мешает", r"blockiert\w*"),
        ("blocked", "stuck", "on hold", "waiting", "заблокировано", "ожидание", "blockiert"),
    ),
    "waiting": (
        _words(r"waiting", r"on hold", r"ожида\w+", r"жд[её]т", r"ждут", r"warten", r"wartet"),
        ("waiting", "wait", "on hold", "ожидание", "wartet", "wartend"),
    ),
    "in progress": (
        _words(r"in progress", r"ongoing", r"in work", r"being worked on", r"в работе", r"выполняет\w*", r"in arbeit"),
        ("in progress", "doing", "in work", "started", "wip", "active", "в работе", "делается", "in arbeit"),
    ),
    "in review": (
        _words(r"in review", r"under review", r"being reviewed", r"на проверке", r"на ревью", r"in prüfung"),
        ("in review", "review", "reviewing", "на проверке", "ревью", "in prüfung"),
    ),
    "in the backlog": (_words(r"backlog", r"бэклог\w*", r"беклог\w*"), ("backlog", "бэклог")),
}
_ENDINGS = (
    "ами",
    "ями",
    "ого",
    "его",
    "ому",
    "ему",
    "ой",
    "ей",
    "ом",
    "ем",
    "ым",
    "им",
    "ах",
    "а",
    "я",
    "ы",
    "и",
    "у",
    "ю",
    "е",
)
_LATIN = dict(
    zip(
        "абвгдеёжзийклмнопрстуфхцчшщъыьэюя",
        "a b v g d e e zh z i i k l m n o p r s t u f kh ts ch sh shch  y  e yu ya".split(" "),
        strict=True,
    )
)
_SUBJECTS = {
    "клиент": "customer", "заказчик": "customer", "лид": "lead", "встреч": "meeting", "событи": "event",
    "задач": "task", "aufgabe": "task", "письм": "email", "почт": "email",
    "проект": "project", "сделк": "deal", "контакт": "contact",
    "kunde": "customer", "kunden": "customer", "termine": "meeting", "besprechung": "meeting", "projekt": "project",
}  # fmt: skip
_STOP_WORDS = frozenset(
    "the a an of in on to is are was were my me i we our you all and or for by per with from at it its this that these"
    " those what which who whose how many much do does did have has had be been any there their them they he she his"
    " her can could please show list give tell as if so not no since until before after between each every about into"
    " out up task tasks todo todos status due date name email new item items row rows page pages today tomorrow"
    " yesterday week month day last next first"
    " что кто как какие какая какой сколько у на в во с со по за из для и или мне меня мои мой моя я мы наш все всех"
    " это эта этот есть задач задачи задача дела der die das ein eine und oder ist sind von mit zu".split()
)
_TYPED_WORDS = (
    "task", "tasks", "overdue", "blocked", "deadline", "deadlines", "unfinished", "progress", "задача", "задачи",
    "задач", "просрочено", "просроченные", "aufgabe", "aufgaben", "überfällig", "überfällige", "überfälligen",
)  # fmt: skip
"""Words of questions about work that are also understood with two letters swapped, one missing or one doubled."""

_MIN_TYPED = 4
_FOLLOW_UP = re.compile(
    r"^\W*(?:and|what about|how about|а|и|und|was ist mit)(?!\w)"
    r"|(?<!\w)(?:those|these|them|of it|из них|этих|среди них|davon|denen|diesen?)(?!\w)",
    re.IGNORECASE,
)
_PRIORITY = re.compile(r"(?<!\w)(?:priority|prio|приоритет\w*|priorität)\W+(?:of\W+)?(\w{1,8})(?!\w)", re.IGNORECASE)
_MAX_UNASSIGNED = 200  # tasks read to see whether the workspace assigns tasks to people at all
_MAX_CHANGES_READ = 300
_ANY_TASK = workspace.CellFilter(names=(workspace.TASK_CELL,), values=("open", "done"))
_MAX_WORDS, _MAX_GRAM, _MAX_VALUES = 40, 4, 60
_MAX_DATABASES, _GROUPS_SHOWN = 100, 12
_FEED_LINES = 15
_LINE_CHARS = 60
_MAX_GROUPINGS = 3
_MIN_STEM = 3
_REPORT_DAYS = 7
_ROW_STEP, _CHANGE_STEP = 0.002, 0.01
_MENTIONED_RELEVANCE = 0.7  # of rows that an instruction mentions but does not ask for


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedQuery:
    """A query about work, what it asks for in words, and whether the question asks for its result."""

    label: str
    query: workspace.BlockQuery
    is_answer: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class _Reading:
    """What a question says about work."""

    question: str
    people: tuple[workspace.CellValue, ...]
    is_about_me: bool
    has_owners: bool
    labels: tuple[workspace.CellValue, ...]
    states: tuple[str, ...]
    span: TimeSpan | None
    databases: tuple[workspace.Block, ...]

    @property
    def is_about_tasks(self) -> bool:
        """Whether it asks about tasks, also without the word."""
        if any(words.search(self.question) for words in (_TASKS, _OVERDUE, _DOING)):
            return True
        has_person = self.is_about_me or bool(self.people)
        did = _DONE.search(self.question) is not None or _OPEN.search(self.question) is not None
        return not self.databases and (bool(self.states) or (has_person and did))


async def collect_work(state: BuildState, section: SectionType) -> Sequence[Candidate]:
    """The blocks that answer a question about work; the facts about them are added to the state."""
    limit = state.config.collectors.planner.row_limit
    reading = await _read_question(state)
    found: dict[str, workspace.Block] = {}
    first = 1.0
    databases = await _find_task_databases(state, reading)
    plans = await _plan_task_rows(state, reading, databases) if databases else _plan_queries(state, reading)
    for planned in plans:
        selection = await _run(state, planned, reading, limit)
        state.facts.append(_make_fact(planned, selection))
        found |= {block.id: block for block in selection.blocks if block.id not in found}
        first = min(first, 1.0 if planned.is_answer else _MENTIONED_RELEVANCE)
    return state.add_ranked_candidates(section, list(found.values()), first, _ROW_STEP, source="planner")


async def collect_changes(state: BuildState, section: SectionType) -> Sequence[Candidate]:
    """What changed in the time that the question names, of everything the asker may see."""
    question = _QUOTED.sub(" ", state.question)
    if not (_CHANGED.search(question) and _CHANGE_QUESTION.search(question)):
        return []
    config = state.config.collectors.planner
    span = detect_span(question, state.now, state.request.zone)
    users = await _find_users(state, question)
    if span is None and not users:
        return []
    since = span.start if span is not None and span.start is not None else state.now - timedelta(days=_REPORT_DAYS)
    until = min(span.end, state.now) if span is not None and span.end is not None else state.now
    feed = await state.store.changes(
        state.scope, since=since, until=until + timedelta(microseconds=1), users=users, limit=_MAX_CHANGES_READ
    )
    # What an import changed is nobody's activity, and stands behind what people did.
    changes = sorted(feed.changes, key=lambda each: not each.user)[: config.change_limit]
    blocks = {block.id: block for block in await state.store.get(state.scope, [each.block_id for each in changes])}
    by = f" by {', '.join(users[:1])}" if users else ""
    when = span.label if span is not None else f"in the last {_REPORT_DAYS} days"
    lines = [line for each in changes[:_FEED_LINES] if (line := _change_line(state, each, blocks))]
    fact = CollectedFact(label=f"Blocks changed {when}{by}", total=feed.total, keys=tuple(blocks), details=tuple(lines))
    state.facts.append(fact)
    return state.add_ranked_candidates(section, list(blocks.values()), 1.0, _CHANGE_STEP, source="changes")


def _change_line(state: BuildState, change: workspace.Activity, blocks: Mapping[str, workspace.Block]) -> str:
    block = blocks.get(change.block_id)
    if block is None:
        return ""
    who = f", {workspace.person_name(change.user)}" if change.user else ""
    text = " ".join(block.text.split())
    short = text if len(text) <= _LINE_CHARS else text[:_LINE_CHARS].rsplit(" ", 1)[0] + " …"
    return f"{change.time.astimezone(state.request.zone):%Y-%m-%d %H:%M}{who}: {short}"


async def _find_users(state: BuildState, question: str) -> tuple[str, ...]:
    """The users that a question about changes names; the asker for "I" and "my"."""
    names = [
        word
        for word in _TOKEN.findall(question)
        if word[:1].isupper() and workspace.plain_name(word) not in _STOP_WORDS
    ]
    terms = [term for word in names for term in _spell(workspace.plain_name(word))]
    if re.search(r"(?<!\w)(?:i|я|ich)(?!\w)", question, re.IGNORECASE):
        return (state.scope.user,)
    people = [
        each.value for each in await state.store.find_values(state.scope, terms, limit=_MAX_VALUES) if each.is_person
    ]
    first = {workspace.plain_name(word) for word in _TOKEN.findall(question)[:1]}
    named = [term for term in terms if term not in first]
    if not people and not named:
        return ()
    users = [*people, *(value.partition("@")[0] for value in people), *named]
    known = await state.store.changes(
        state.scope, since=state.now - timedelta(days=3650), until=state.now, users=users, limit=50
    )
    active = dict.fromkeys(each.user for each in known.changes)
    return tuple(user for user in dict.fromkeys(users) if user in active) or tuple(dict.fromkeys(people))


async def _read_question(state: BuildState) -> _Reading:
    """What a question says; a follow-up such as "and for Boris?" takes what it leaves open from the one before."""
    reading = await _read_text(state, state.question)
    previous = next((each.content for each in reversed(state.request.conversation_history) if each.role == "user"), "")
    if not previous or not _FOLLOW_UP.search(reading.question):
        return reading
    before = await _read_text(state, previous)
    has_person = bool(reading.people) or reading.is_about_me
    return replace(
        reading,
        question=f"{reading.question}\n{before.question}",
        people=reading.people if has_person else before.people,
        is_about_me=reading.is_about_me or (not has_person and before.is_about_me),
        labels=reading.labels or before.labels,
        states=reading.states or before.states,
        span=reading.span or before.span,
        databases=reading.databases or before.databases,
    )


async def _read_text(state: BuildState, text: str) -> _Reading:
    """What a text says, with its words looked up among the values of the workspace."""
    question = _TOKEN.sub(lambda found: _correct_word(found[0]), _QUOTED.sub(" ", text))
    grams = _make_grams(question)
    priority = _PRIORITY.search(question)
    level = "" if priority is None else workspace.plain_name(priority[1])
    wanted = [*([level] if level else []), *(term for gram in grams for term in _spell(gram))]
    states = [name for name, (words, _) in _STATES.items() if words.search(question)]
    identity = _identity(state) if _ME.search(question) else ()
    found = await state.store.find_values(state.scope, [*identity, *wanted], limit=_MAX_VALUES)
    mine = [each for each in found if each.is_person and each.value in set(await _own_values(state, identity))]
    spelled = {term: gram for gram in reversed(grams) for term in _spell(gram)}
    labels = _drop_parts([each for each in found if not each.is_person and not each.name.startswith("#")], spelled)
    labels = [each for each in labels if each.value != level or each.name == "priority" or level in grams]
    labels += [each for each in found if each.name == "priority" and each.value == level and each not in labels]
    people = [each for each in found if each.is_person and each not in mine]
    if mine or (identity and _TASKS.search(question)):
        people = [each for each in people if each.value not in identity]
    named = {each.value for each in people} | {each.value for each in mine}
    return _Reading(
        question=question,
        people=tuple(mine or people),
        is_about_me=bool(identity),
        has_owners=not identity or bool(mine) or await _has_owners(state),
        labels=tuple(each for each in labels if not workspace.is_person_column(each.name) and each.value not in named),
        states=tuple(states),
        span=detect_span(question, state.now, state.request.zone),
        databases=tuple(await _find_databases(state, question)),
    )


async def _has_owners(state: BuildState) -> bool:
    """Whether tasks are assigned to people here; in notes of one person nobody is named, and all tasks are theirs."""
    tasks = (
        await state.store.select(state.scope, workspace.BlockQuery(cells=(_ANY_TASK,)), limit=_MAX_UNASSIGNED)
    ).blocks
    return not tasks or any(
        workspace.is_person_column(workspace.plain_name(name)) for each in tasks for name in each.properties
    )


def _correct_word(word: str) -> str:
    """A word of questions about work in place of one that is it with a slip of the keyboard."""
    lower = word.lower()
    if len(lower) < _MIN_TYPED or lower in _TYPED_WORDS:
        return word
    return next((each for each in _TYPED_WORDS if _is_slip(lower, each)), word)


def _is_slip(typed: str, meant: str) -> bool:
    """Whether two neighbouring letters are swapped, one is missing inside, or one is doubled."""
    if len(typed) == len(meant):
        return any(
            typed == f"{meant[:at]}{meant[at + 1]}{meant[at]}{meant[at + 2 :]}" for at in range(len(meant) - 1)
        ) and sorted(typed) == sorted(meant)
    if len(typed) + 1 == len(meant):
        return any(typed == meant[:at] + meant[at + 1 :] for at in range(1, len(meant) - 1))
    return len(typed) == len(meant) + 1 and any(typed == meant[: at + 1] + meant[at:] for at in range(len(meant)))


def _identity(state: BuildState) -> tuple[str, ...]:
    """The names by which the asker may be listed in the workspace."""
    given = (state.scope.user, state.request.user.name or "", state.request.user.id or "")
    return tuple(dict.fromkeys(workspace.plain_name(each) for each in given if each))


async def _own_values(state: BuildState, identity: Sequence[str]) -> list[str]:
    if not identity:
        return []
    found = await state.store.find_values(state.scope, identity, limit=_MAX_VALUES)
    return [each.value for each in found if each.is_person]


def _make_grams(question: str) -> list[str]:
    """Runs of up to four words of a question, the longest first, without those that are only stop words."""
    words = [_strip_possessive(workspace.plain_name(word)) for word in _TOKEN.findall(question.replace("’", "'"))][
        :_MAX_WORDS
    ]
    grams: list[str] = []
    for size in range(_MAX_GRAM, 0, -1):
        for at in range(len(words) - size + 1):
            run = words[at : at + size]
            if not all(word in _STOP_WORDS or word.isdigit() for word in run):
                grams.append(" ".join(run))
    return list(dict.fromkeys(grams))


def _strip_possessive(word: str) -> str:
    word = word.rstrip(".-/")
    return word.removesuffix("'s").removesuffix("'")


def _spell(gram: str) -> list[str]:
    """The ways in which a value may be written: as it is, without an ending, with a hyphen, and in Latin letters."""
    spelled = [gram]
    if " " in gram:
        spelled += [gram.replace(" ", "-"), gram.replace(" ", "_")]
    elif "-" in gram:
        spelled.append(gram.replace("-", " "))
    if " " not in gram and len(gram) >= _MIN_STEM:
        if gram.endswith("s"):
            spelled.append(gram[:-1])
        if any("а" <= letter <= "я" or letter == "ё" for letter in gram):
            stems = [
                gram,
                *(
                    gram.removesuffix(end)
                    for end in _ENDINGS
                    if gram.endswith(end) and len(gram) - len(end) >= _MIN_STEM
                ),
            ]
            spelled += [form for stem in stems for form in (stem, f"{stem}а", f"{stem}я")]
            spelled += [_to_latin(form) for form in list(spelled)]
    return list(dict.fromkeys(spelled))


def _to_latin(word: str) -> str:
    return "".join(_LATIN.get(letter, letter) for letter in word)


def _drop_parts(found: Sequence[workspace.CellValue], spelled: Mapping[str, str]) -> list[workspace.CellValue]:
    """The values without those that are part of a longer one: `review` within `in review`."""
    grams = {each: spelled.get(each.value, each.value).split() for each in found}
    return [
        each
        for each in found
        if not any(
            other != each and len(grams[other]) > len(grams[each]) and " ".join(grams[each]) in " ".join(grams[other])
            for other in found
        )
    ]


async def _find_databases(state: BuildState, question: str) -> list[workspace.Block]:
    """The databases that a question names by a word of their title."""
    query = workspace.BlockQuery(types=(workspace.BlockType.DB,))
    databases = (await state.store.select(state.scope, query, limit=_MAX_DATABASES)).blocks
    if not databases:
        return []
    words = [workspace.plain_name(word) for word in _TOKEN.findall(question)]
    translated = [english for word in words for stem, english in _SUBJECTS.items() if word.startswith(stem)]
    asked = set(extract_terms(" ".join([question, *translated])))
    scores = {block.id: len(asked & set(extract_terms(block.text))) for block in databases}
    best = max(scores.values())
    return [block for block in databases if best and scores[block.id] == best]


async def _find_task_databases(state: BuildState, reading: _Reading) -> tuple[workspace.Block, ...]:
    """The databases called `Tasks` or alike that a question about tasks names, if their rows are no tasks otherwise.

    A row is a task when it has a due date or says whether it is done; a table of tasks may only have a status.
    """
    if not reading.is_about_tasks or _is_about_rows(reading):
        return ()
    named = tuple(block for block in reading.databases if _TASKS.search(block.text))
    if not named:
        return ()
    ids = tuple(block.id for block in named)
    tasks = await state.store.select(state.scope, workspace.BlockQuery(databases=ids, cells=(_ANY_TASK,)), limit=0)
    return () if tasks.total else named


async def _plan_task_rows(
    state: BuildState, reading: _Reading, databases: tuple[workspace.Block, ...]
) -> list[PlannedQuery]:
    """The rows of such databases; whether they are done is what their status says."""
    planned = _plan_rows(state, replace(reading, databases=databases), every_row=True)
    columns = tuple(
        name
        for block in databases
        for name in map(workspace.plain_name, database_schema(block))
        if _STATUS_COLUMNS.match(name)
    )
    if planned is None:
        return []
    wants_done = _DONE.search(reading.question) is not None
    if not columns or (reading.labels and not wants_done) or reading.states or _COUNT.search(reading.question):
        return [planned]
    counted = await state.store.select(state.scope, changed(planned.query, cells=(), group_by=columns), limit=0)
    values = {workspace.plain_name(value) for groups in counted.groups.values() for value in groups}
    cell = workspace.CellFilter(
        names=columns, values=tuple(sorted(value for value in values if workspace.means_done(value) is wants_done))
    )
    kept = (
        planned
        if not wants_done
        else _plan_rows(state, replace(reading, databases=databases, labels=()), every_row=True)
    )
    if kept is None or not cell.values:
        return [planned]
    label = f"{'done' if wants_done else 'open'} {kept.label}"
    return [replace(kept, label=label, query=changed(kept.query, cells=(*kept.query.cells, cell)))]


def _plan_queries(state: BuildState, reading: _Reading) -> Iterator[PlannedQuery]:
    if _REPORT.search(reading.question):
        yield from _plan_report(state, reading)
    elif reading.is_about_tasks and not _is_about_rows(reading):
        planned = _plan_tasks(state, reading)
        if planned is not None:
            yield planned
    elif reading.databases:
        planned = _plan_rows(state, reading)
        if planned is not None:
            yield planned


def _is_about_rows(reading: _Reading) -> bool:
    """Whether the database that a question names is more than its tasks."""
    return bool(reading.databases) and not (_TASKS.search(reading.question) or _OVERDUE.search(reading.question))


def _plan_tasks(state: BuildState, reading: _Reading) -> PlannedQuery | None:
    who, cells = _who(state, reading)
    label_cells, labels = _label_filters(reading.labels)
    query = workspace.BlockQuery(cells=(*cells, *label_cells, _ANY_TASK), utc_offset=_offset(state))
    descriptions: list[str] = []
    if _OVERDUE.search(reading.question):
        query, descriptions = changed(query, done=False, due_before=state.now), ["overdue"]
    elif _OPEN.search(reading.question):
        query, descriptions = changed(query, done=False), ["open"]
    elif _DONE.search(reading.question) and not any(each.value in ("done", "completed") for each in reading.labels):
        query, descriptions = changed(query, done=True), ["done"]
    elif not reading.labels and not reading.states and not _COUNT.search(reading.question):
        query, descriptions = changed(query, done=False), ["open"]
    state_cells, state_label = _state_filters(reading)
    query = changed(query, cells=(*query.cells, *state_cells))
    when = ""
    if reading.span is not None and not _OVERDUE.search(reading.question):
        if query.done:
            query = changed(query, modified_from=reading.span.start, modified_before=reading.span.end)
            when = f" {reading.span.label}"
        else:
            query = changed(query, due_from=reading.span.start, due_before=reading.span.end)
            when = f" due {reading.span.label}"
    asks = any(words.search(reading.question) for words in (_ALL, _COUNT, _ME, _OVERDUE, _DOING, _PER))
    if not (asks or len(query.cells) > 1 or when):
        return None
    label = " ".join([*descriptions, "tasks"]) + who + labels + state_label + when
    return PlannedQuery(label=label, query=query)


def _plan_rows(state: BuildState, reading: _Reading, *, every_row: bool = False) -> PlannedQuery | None:
    columns = {workspace.plain_name(name) for block in reading.databases for name in database_schema(block)}
    inside = replace(
        reading,
        people=tuple(each for each in reading.people if not columns or each.name in columns),
        labels=tuple(each for each in reading.labels if not columns or each.name in columns),
    )
    who, cells = _who(state, inside, only_known=True)
    label_cells, labels = _label_filters(inside.labels)
    state_cells, state_label = ((), "") if inside.labels else _state_filters(reading)
    when, time_cells = _date_filters(inside, columns)
    every = (*cells, *label_cells, *state_cells, *time_cells)
    asks = any(words.search(reading.question) for words in (_ALL, _COUNT, _PER))
    ranks_people = _WHO.search(reading.question) and _SUPERLATIVE.search(reading.question)
    if not (every or every_row or ranks_people or _COUNT.search(reading.question) or _PER.search(reading.question)):
        return None
    title = " and ".join(f"“{' '.join(block.text.split())}”" for block in reading.databases[:3])
    query = workspace.BlockQuery(
        databases=tuple(block.id for block in reading.databases),
        types=(workspace.BlockType.DB_ROW,),
        cells=every,
        newest=bool(
            re.search(
                r"(?<!\w)(?:last|latest|newest|recent|последн\w*|letzte\w*)(?!\w)", reading.question, re.IGNORECASE
            )
        ),
    )
    return PlannedQuery(label=f"rows of {title}{who}{labels}{state_label}{when}", query=query, is_answer=asks)


def _plan_report(state: BuildState, reading: _Reading) -> Iterator[PlannedQuery]:
    """Done, in progress, blocked and next, of the asker unless the question names someone else."""
    who, cells = _who(state, replace(reading, is_about_me=not reading.people or reading.is_about_me))
    week = timedelta(days=_REPORT_DAYS)
    base = workspace.BlockQuery(cells=cells, utc_offset=_offset(state))
    yield PlannedQuery(
        label=f"tasks done in the last {_REPORT_DAYS} days{who}",
        query=changed(base, done=True, modified_from=state.now - week, newest=True),
    )
    for name in ("in progress", "blocked"):
        cell = workspace.CellFilter(values=_STATES[name][1])
        yield PlannedQuery(label=f"tasks {name}{who}", query=changed(base, done=False, cells=(*cells, cell)))
    yield PlannedQuery(
        label=f"next: open tasks due up to {(state.now + week).date()}{who}",
        query=changed(base, done=False, due_before=state.now + week),
    )


def _who(
    state: BuildState, reading: _Reading, *, only_known: bool = False
) -> tuple[str, tuple[workspace.CellFilter, ...]]:
    """The people as words and as a filter; an asker whom the workspace does not know has no tasks."""
    if reading.people:
        names = tuple(dict.fromkeys(each.name for each in reading.people))
        values = tuple(dict.fromkeys(each.value for each in reading.people))
        shown = " or ".join(dict.fromkeys(workspace.person_name(value) for value in values))
        return f" of {shown}", (workspace.CellFilter(names=names, values=values),)
    if reading.is_about_me and not only_known and reading.has_owners:
        return f" of {workspace.person_name(state.scope.user)}", (
            workspace.CellFilter(names=("assignee",), values=_identity(state)),
        )
    return "", ()


def _label_filters(labels: Sequence[workspace.CellValue]) -> tuple[tuple[workspace.CellFilter, ...], str]:
    """One filter per column that has a value of the question; the same value in several columns is one filter."""
    by_value: dict[str, list[str]] = {}
    for each in labels:
        by_value.setdefault(each.value, []).append(each.name)
    by_columns: dict[tuple[str, ...], list[str]] = {}
    for value, names in by_value.items():
        by_columns.setdefault(tuple(sorted(names)), []).append(value)
    filters = tuple(workspace.CellFilter(names=names, values=tuple(values)) for names, values in by_columns.items())
    conditions = [f"{names[0]} {' or '.join(values)}" for names, values in by_columns.items()]
    return filters, f" with {', '.join(conditions)}" if conditions else ""


def _state_filters(reading: _Reading) -> tuple[tuple[workspace.CellFilter, ...], str]:
    """The states that a question names and that no value of the workspace already is."""
    known = {re.sub(r"[-_]+", " ", each.value) for each in reading.labels}
    names = [name for name in reading.states if known.isdisjoint(_STATES[name][1])]
    if not names:
        return (), ""
    values = tuple(value for name in names for value in _STATES[name][1])
    return (workspace.CellFilter(values=values),), f" {' or '.join(names)}"


_COLUMN_NOISE = frozenset(("date", "by", "at", "on", "time", "datetime", "name", "id"))


def _date_filters(reading: _Reading, columns: set[str]) -> tuple[str, tuple[workspace.CellFilter, ...]]:
    """Rows with a date in the time that a question names, in the columns it names, or in any."""
    span = reading.span
    if span is None:
        return "", ()
    asked = set(extract_terms(reading.question))
    named = [
        column
        for column in sorted(columns)
        if asked
        & set(extract_terms(" ".join(word for word in re.split(r"[\W_]+", column) if word not in _COLUMN_NOISE)))
    ]
    dated = tuple(column for column in named if re.search(r"date|day|time|by|start|due|when|дата|срок", column))
    end = "" if span.end is None else span.end.date().isoformat()
    start = span.first_day or "0"
    return f" {span.label}", (workspace.CellFilter(names=dated, start=start, end=end or "9999-99"),)


def _offset(state: BuildState) -> int:
    offset = state.now.astimezone(state.request.zone).utcoffset()
    return 0 if offset is None else int(offset.total_seconds())


async def _run(state: BuildState, planned: PlannedQuery, reading: _Reading, limit: int) -> workspace.BlockSelection:
    """The result of a query, grouped by what the question asks for, and by status and person."""
    first = await state.store.select(state.scope, planned.query, limit=limit)
    columns = _group_columns(reading, first.blocks)
    if not columns or first.total <= 1:
        return first
    counted = await state.store.select(state.scope, changed(planned.query, group_by=columns), limit=0)
    return changed(first, groups=counted.groups)


def _group_columns(reading: _Reading, blocks: Sequence[workspace.Block]) -> tuple[str, ...]:
    """The columns to count by: that of the question first, then the status and the people."""
    columns = list(dict.fromkeys(workspace.plain_name(name) for block in blocks for name in block.properties))
    people = [name for name in columns if workspace.is_person_column(name)]
    statuses = [name for name in columns if _STATUS_COLUMNS.match(name)]
    chosen: list[str] = []
    asked = _PER.search(reading.question)
    if asked is not None:
        what = asked["what"]
        terms = set(extract_terms(what))
        if _PEOPLE_WORDS.search(what):
            chosen += people
        if _STATUS_WORDS.search(what):
            chosen += statuses
        chosen += [name for name in columns if terms & set(extract_terms(re.sub(r"[\W_]+", " ", name)))]
    if _WHO.search(reading.question) and _MOST.search(reading.question):
        chosen += people
    implied = people if len({each.value for each in reading.people}) != 1 and not reading.is_about_me else []
    return tuple(dict.fromkeys([*chosen, *statuses, *implied]))[:_MAX_GROUPINGS]


def _make_fact(planned: PlannedQuery, selection: workspace.BlockSelection) -> CollectedFact:
    details = tuple(
        f"by {name}: {_list_groups(name, groups)}" for name, groups in selection.groups.items() if len(groups) > 0
    )
    return CollectedFact(
        label=planned.label, total=selection.total, keys=tuple(block.id for block in selection.blocks), details=details
    )


def _list_groups(name: str, groups: Mapping[str, int]) -> str:
    show = workspace.person_name if workspace.is_person_column(name) else str
    counts = [f"{show(value)} {count}" for value, count in list(groups.items())[: _GROUPS_SHOWN * 2]]
    more = len(groups) - len(counts)
    return ", ".join(counts) + (f", and {more} more" if more > 0 else "")
