"""Version 1 of the fence, kept unchanged so that capsules built with it are replayed to the same bytes.

A line that looks like a marker, a code fence or a role is escaped with a leading backslash.
"""

import re
import unicodedata

_BREAK = r"\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029"
_INVISIBLE = (
    r"\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f"
    r"\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff"
)
_CONTROL = r"\x00-\x08\x0e-\x1b\x1f\x7f-\x84\x86-\x9f"
_BLANK = r"\t \xa0\u1680\u2000-\u200a\u202f\u205f\u3000"
_QUOTE = "\"'>|«»‹›“”„‟‘’‚‛「」『』＂＇＞｜"
_SKIPPED = rf"[{_BLANK}{_CONTROL}{_INVISIBLE}{_QUOTE}]"

# Scripts without compatibility forms of ASCII: a line that starts in one of them is not a marker.
_PLAIN_SCRIPTS = r"\u0400-\u04ff\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3"
# A word can only be a role when a colon, or a character that NFKC may turn into one, follows soon.
_COLON_AHEAD = r"(?=[\t !-9;-~]{0,80}+[^\t !-9;-~\n])"
_MARKER_START = rf"[#\[`~<=*_+Nn-]|[SUARHDTFMBGCsuarhdtfmbgc]{_COLON_AHEAD}|[^\x00-\x7f{_PLAIN_SCRIPTS}]"
_LINE_START = re.compile(rf"([{_BREAK}])(\\*+)({_SKIPPED}*+)(?={_MARKER_START})")
_LINE_HEAD = re.compile(rf"[^{_BREAK}]{{0,300}}")
_HIDDEN = re.compile(rf"[{_INVISIBLE}{_CONTROL}]")

_ROLE = "system|user|assistant|human|developer|tool|function|ai|model|bot|gpt|chatgpt|claude"
_MARKER = re.compile(
    rf"""
      \s*(?:=+|[-‐-―−]{{2,}}|(?:[-‐-―−*_]\s*){{3,}})\s*$      # a separator, or the underline of a heading
    | [\s{_QUOTE}*_+•-]*
      (?: \#                                                   # a heading
        | ```|~~~                                              # a code fence
        | \[\s*(?:\d+\s*\]|document\b|/?inst\s*\])             # [1] (label), [Document 1: ...], [INST]
        | \[[^\]]*\](?:\s*\[[^\]]*\])?\s*$                     # [Title] [kind]
        | <\|                                                  # <|im_start|>
        | <</?sys>>|</?s>|<(?:start|end)_of_turn>|</?(?:{_ROLE})>
        | (?:{_ROLE}|user\s{{1,9}}query|relevant\s{{1,9}}memory)[\s*_]{{0,40}}:
        | no\s+relevant\s+content\s+found
      )
    """,
    re.IGNORECASE | re.VERBOSE,
)


def fence(text: str) -> str:
    r"""The text with a `\` before every line that looks like a marker, and nothing else changed."""
    if len(text.splitlines()) > 1:
        return _LINE_START.sub(_escape_line, "\n" + text)[1:]
    line = _LINE_START.match("\n" + text)
    return f"\\{text}" if line is not None and _is_marker(line) else text


def is_fenced(text: str) -> bool:
    r"""Whether every line that looks like a marker has a `\` before it; true for any result of `fence`."""
    return not any(_is_marker(line) for line in _LINE_START.finditer("\n" + text) if not line.group(2))


def _escape_line(line: re.Match[str]) -> str:
    return f"{line[1]}\\{line[2]}{line[3]}" if _is_marker(line) else line[0]


def _is_marker(line: re.Match[str]) -> bool:
    found = _LINE_HEAD.match(line.string, line.end())
    head = found[0] if found else ""
    if not head.isascii():
        head = unicodedata.normalize("NFKC", head)
    plain = head.isascii() and head.isprintable()
    return _MARKER.match(head if plain else _HIDDEN.sub("", head)) is not None
