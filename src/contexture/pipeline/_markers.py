r"""Lines that read as a marker of a prompt's own format or as a role, and how they are escaped.

Lines are compared by their skeleton, after what decorates them: white space, quotes, list marks, numbering and the
signs of a heading. These are skipped first and the rest is matched once, so that no text is slow.
"""

import re
from collections.abc import Iterator
from enum import StrEnum

from contexture.text.skeleton import map_skeleton, skeleton
from contexture.workspace import BlockType


class PromptFormat(StrEnum):
    """How a prompt marks its blocks.

    `[1] (label)` and `[Document 1: ...]`, the same under headings of sections, or the sections of a workspace.
    """

    NUMBERED = "numbered"
    SECTIONS = "sections"
    WORKSPACE = "workspace"


_DECORATION_CHARS = "\"'>|*_+~`•◦▪▫‣⁃·∙●○■□◆◇★☆✓✔➤➢→←–—“”„‟‘’‚‛«»《》「」『』-"

_SHORT_ROLES = ("ai", "ki", "gpt", "bot", "ии", "бот")
_ROLES = (
    "system", "user", "assistant", "human", "developer", "function", "tool", "model", "chatgpt", "claude",
    "gemini", "llama", "copilot",
    "система", "пользователь", "ассистент", "помощник", "разработчик", "человек", "инструмент", "функция",
    "модель", "benutzer", "benutzerin", "nutzer", "nutzerin", "anwender", "assistent", "assistentin", "entwickler",
    "entwicklerin", "mensch", "werkzeug", "funktion", "modell",
    "системный промпт", "системный запрос", "системное сообщение", "системное уведомление", "системная инструкция",
    "системные инструкции", "системная подсказка", "сообщение системы", "инструкция системы", "сообщение пользователя",
    "запрос пользователя", "вопрос пользователя", "ответ ассистента", "ответ модели", "сообщение разработчика",
    "systemprompt", "systemnachricht", "systemmeldung", "systemanweisung", "systemanweisungen", "systemhinweis",
    "benutzeranfrage", "benutzereingabe", "benutzernachricht", "nutzeranfrage", "nutzereingabe", "nutzernachricht",
    "assistentenantwort", "entwicklernachricht",
)  # fmt: skip
_SUFFIXES = (
    "prompt", "message", "messages", "instruction", "instructions", "note", "notice", "input", "query", "question",
    "request", "response", "reply", "output", "result", "results", "turn", "role", "override", "update", "reminder",
    "command", "nachricht", "anweisung", "anweisungen", "anfrage", "eingabe", "antwort", "промпт", "сообщение",
)  # fmt: skip
_DISGUISES = {
    "a": "[a4@]", "e": "[e3]", "i": "[il1|!]", "l": "[il1|!]", "m": "(?:m|rn)", "o": "[o0]", "s": "[s5$]",
    "t": "[t7]", " ": r"\s*",
}  # fmt: skip


def _spell_word(word: str) -> str:
    """A pattern for the skeleton of a word, also with digits for letters and with single gaps between letters."""
    return r"[\s._\-]?".join(_DISGUISES.get(char) or re.escape(char) for char in skeleton(word))


def _join_words(words: list[str]) -> str:
    return f"(?:{'|'.join(sorted(words, key=len, reverse=True))})"


_ROLE = _join_words([*map(_spell_word, _ROLES), *map(skeleton, _SHORT_ROLES)])
_SPEAKER = rf"{_ROLE}(?:[\s_\-]*{_join_words([skeleton(word) for word in _SUFFIXES])}){{0,3}}"
_MAX_SPEAKER_CHARS = 80  # more than any speaker has, without white space
_SPOKEN = re.compile(  # System: **user:** [system]: (System): System prompt:
    rf"[\[({{<\s]*{_SPEAKER}[\s\])}}>\"'*_~`”’»》〕」』|/\-]*:|relevant\s*memory\s*:|[{{\[\s,\"']*role[\"']\s*[:=]\s*[\"']?{_ROLE}"
)
_TAGGED = re.compile(  # [system] obey, <system>, <user name="x">
    rf"[\[{{]\s*/?\s*{_SPEAKER}\s*[\]}}]|<\s*/?\s*(?:system[\w\-]*|{_SPEAKER})(?:[\s/>]|$)"
)
_TEMPLATE_HEADING = re.compile(r"(?:instructions?|response|input)\s*:\s*$")  # ### Instruction:
_NOTHING_FOUND = re.compile(r"no\s+(?:relevant\s+content|articles)\s+found[\W_]*$")
_KINDS = "|".join([*map(str, BlockType), "message", "instruction"])
_SECTION_HEADING = re.compile(r"(?:memories|records|documents|news|workspace)[\W_]*$")
_NUMBERED_BLOCK = re.compile(r"\[\s*(?:\d+\s*\](?!\s*:)|document\b)")
_BRACKETED = {
    PromptFormat.NUMBERED: _NUMBERED_BLOCK,
    PromptFormat.SECTIONS: _NUMBERED_BLOCK,
    PromptFormat.WORKSPACE: re.compile(rf"\[[^\[\]]*\]\s*\[[^\[\]]*\]\s*$|\[\s*(?:{_KINDS})\s*\]\s*$"),
}
_NUMBERING = re.compile(rf"(?:[{re.escape(_DECORATION_CHARS)}\s#]|\(?\d{{1,6}}[.):\]]+(?=\D|$)|\(?[a-z][.)]+(?=\s))+")
_SEPARATOR = re.compile(r"(?:={2,}|-{2,}|(?:[\-*_]\s*){3,})\s*$")
_HEADING = re.compile(rf"[{re.escape(_DECORATION_CHARS)}\s]*(\#{{1,3}}(?=\s|$)|\#{{2,3}}(?!\#))")
_CODE_FENCE = re.compile(r"[\s>*+\-]*(`{3,}|~{3,})(.*)")
_STRIPPED = _DECORATION_CHARS + " \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f"
_MAX_CODE_HEADING = 1  # a line of code that begins with one # is a comment


def escape_markers(text: str, form: PromptFormat) -> str:
    """The text with a backslash before every marker line.

    In a workspace text headings of the first three levels move below the prompt's own; comments in code stay. A code
    fence that is not closed inside the text is escaped, because it would run into the next block.
    """
    parts: list[str] = []
    done = 0
    for at, new in find_edits(text, form):
        parts += (text[done:at], new)
        done = at
    return "".join((*parts, text[done:])) if parts else text


def find_edits(text: str, form: PromptFormat) -> Iterator[tuple[int, str]]:
    """Where `escape_markers` inserts something, and what; nothing for a text that it returned."""
    code = _CodeLines(text)
    offset = 0
    for line in text.splitlines(keepends=True):
        plain = line.lower() if line.isascii() else skeleton(line)
        if line[0] != "\\" and (offset in code.unclosed or _is_marker(plain, form)):
            yield offset, "\\"
        elif form is PromptFormat.WORKSPACE and "#" in plain and (heading := _find_heading(line)):
            at, level = heading
            if offset not in code.inside:
                yield offset + at, "###"
            elif level > _MAX_CODE_HEADING:
                yield offset, "\\"
        offset += len(line)


def _is_marker(plain: str, form: PromptFormat) -> bool:
    """Whether the skeleton of a line is a marker."""
    if (
        form is PromptFormat.WORKSPACE
        and plain.lstrip()[:1] in ("=", "-", "*", "_")
        and _SEPARATOR.match(plain.strip())
    ):
        return True
    bare = plain.lstrip(_STRIPPED)
    if not bare:
        return False
    if bare[0] in "#(0123456789" or bare[1:2] in (".", ")"):
        found = _NUMBERING.match(bare)
        heading = found is not None and "#" in found[0]
        bare = bare[found.end() :] if found else bare
        if heading and _is_reserved_heading(bare, form):
            return True
    colon = bare.find(":")
    near = colon >= 0 and (colon < _MAX_SPEAKER_CHARS or len("".join(bare[:colon].split())) < _MAX_SPEAKER_CHARS)
    if near and _SPOKEN.match(bare):
        return True
    if bare[:1] in ("[", "{", "<"):
        return _TAGGED.match(bare) is not None or _BRACKETED[form].match(bare) is not None
    return bare.startswith("no") and _NOTHING_FOUND.match(bare) is not None


def _is_reserved_heading(bare: str, form: PromptFormat) -> bool:
    """Whether the words of a heading are those of a template or, where sections have headings, of a section."""
    if form is PromptFormat.SECTIONS and _SECTION_HEADING.match(bare):
        return True
    return _TEMPLATE_HEADING.match(bare) is not None


def _find_heading(line: str) -> tuple[int, int] | None:
    """Offset and level of a heading of the first three levels; None for any other line."""
    plain, offsets = map_skeleton(line)
    found = _HEADING.match(plain)
    return None if found is None else (offsets[found.start(1)], len(found[1]))


class _CodeLines:
    """Offsets of the lines inside closed code fences, and of the fences from the first that is not closed."""

    def __init__(self, text: str) -> None:
        self.inside: set[int] = set()
        self.unclosed: set[int] = set()
        if "```" not in text and "~~~" not in text:
            return
        mark = ""
        inner: list[int] = []
        fences: list[int] = []  # since the one that is open
        offset = 0
        for line in text.splitlines(keepends=True):
            found = _CODE_FENCE.match(line.rstrip())
            if found and not mark:
                mark, inner, fences = found[1], [], [offset]
            elif found and found[1].startswith(mark) and not found[2]:
                self.inside.update(inner)
                mark = ""
            elif mark:
                inner.append(offset)
                fences += [offset] if found else []
            offset += len(line)
        if mark:
            self.unclosed.update(fences)
