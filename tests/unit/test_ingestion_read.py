"""Reading rows and files: what becomes a record, and what is said about the rest."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contexture.ingestion.files import LoadProblem, SourcedRecord
from contexture.ingestion.records import read_jsonl, read_records, read_text_file
from contexture.types import Record


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Paths are named as they are given: the tests stand in their folder and name it by a dot."""
    monkeypatch.chdir(tmp_path)


def records(items):
    """The records among what was read."""
    return [item.record for item in items if isinstance(item, SourcedRecord)]


def problems(items):
    """The problems among what was read, as lines."""
    return [str(item) for item in items if isinstance(item, LoadProblem)]


def write(path, *rows):
    """A file with these rows; bytes are written as they stand."""
    path.write_bytes(b"\n".join(row if isinstance(row, bytes) else json.dumps(row).encode() for row in rows))
    return path


def test_known_fields_are_read_by_name_and_the_rest_is_payload(tmp_path):
    """Every documented field lands in its place, every other one in the payload."""
    row = {
        "id": "a", "text": "Pump.", "title": "T", "lang": "en", "date": "2026-03-01", "source": "wiki", "kind": "mail",
        "session": "s", "position": 3, "acl": ["user:anna"], "group": "g", "stars": 5,
    }  # fmt: skip

    assert [
        Record(
            id="a", text="Pump.", title="T", lang="en", time=datetime(2026, 3, 1, tzinfo=UTC), source="wiki",
            kind="mail", session="s", position=3, acl=("user:anna",), payload={"group": "g", "stars": 5},
        )
    ] == records(read_jsonl(write(tmp_path / "a.jsonl", row)))  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{broken", "not JSON"),
        (b"[1]", "must be an object"),
        (b'{"text": "x"}', "'id' is missing"),
        (b'{"id": "x"}', "'text' is missing"),
        (b'{"id": "", "text": "x"}', "'id' must be"),
        (b'{"id": 7, "text": "x"}', "'id' must be a string"),
        (b'{"id": "x", "text": ["x"]}', "'text' must be a string"),
        (b'{"id": "x", "text": "x", "title": 3}', "'title' must be a string"),
        (b'{"id": "x", "text": "x", "position": "1"}', "'position' must be a whole number"),
        (b'{"id": "x", "text": "x", "position": true}', "'position' must be a whole number"),
        (b'{"id": "x", "text": "x", "acl": "public"}', "'acl' must be a list"),
        (b'{"id": "x", "text": "x", "acl": ["user:a", 1]}', "'acl' may contain only principals"),
        (b'{"id": "x", "text": "x", "n": 99999999999999999999999}', "cannot be stored"),
        (b'{"id": "x", "text": "x", "n": NaN}', "not JSON"),
        (b'{"id": "x\\ud800", "text": "x"}', "valid Unicode"),
        (b'{"id": "x", "text": "\xff"}', "invalid UTF-8 at byte"),
        (b"[" * 100_000, "nested too deeply"),
    ],
    ids=lambda value: value[:24].decode(errors="replace") if isinstance(value, bytes) else None,
)
def test_a_malformed_line_is_named_and_the_others_load(tmp_path, line, said):
    """A bad line is reported with file and number; the lines around it are records."""
    path = write(tmp_path / "rows.jsonl", {"id": "1", "text": "a"}, line, {"id": "3", "text": "c"})
    found = list(read_jsonl(path, name="rows.jsonl"))

    assert ["1", "3"] == [record.id for record in records(found)]
    (problem,) = problems(found)
    assert problem.startswith("rows.jsonl:2: ")
    assert said in problem


@pytest.mark.parametrize("name", ["date", "time", "timestamp", "created_at"])
def test_a_bad_date_is_a_warning_and_the_row_loads_without_it(tmp_path, name):
    """Any of the four names for a time may be unreadable without costing the row."""
    found = list(read_jsonl(write(tmp_path / "a.jsonl", {"id": "1", "text": "a", name: "soon"})))

    assert [None] == [record.time for record in records(found)]
    assert [{}] == [record.payload for record in records(found)]
    (warning,) = [item for item in found if isinstance(item, LoadProblem)]
    assert warning.warning
    assert warning.line == 1


@pytest.mark.parametrize("value", ["2026-02-03T04:05:06Z", "2026-02-03T07:05:06+03:00", "2026-02-03T04:05:06"])
def test_times_are_read_in_utc(tmp_path, value):
    """Zones are converted, and a time without one is UTC."""
    found = records(read_jsonl(write(tmp_path / "a.jsonl", {"id": "1", "text": "a", "created_at": value})))

    assert [datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)] == [record.time for record in found]


def test_a_time_outside_the_calendar_is_a_warning(tmp_path):
    """A time that leaves the calendar once it is in UTC is treated as missing."""
    found = list(read_jsonl(write(tmp_path / "a.jsonl", {"id": "1", "text": "a", "time": "0001-01-01T00:00+14:00"})))

    assert [None] == [record.time for record in records(found)]
    assert len(problems(found)) == 1


def test_blank_lines_and_a_byte_order_mark_are_passed_over(tmp_path):
    """Editors leave both behind."""
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"id": "1", "text": "a"}\r\n\r\n  \n{"id": "2", "text": "b"}')

    assert ["1", "2"] == [record.id for record in records(read_jsonl(path))]
    assert [] == problems(read_jsonl(path))


def test_a_line_beyond_the_limit_is_reported_without_being_kept(tmp_path):
    """A line that is too long costs itself, not its neighbours, and numbers stay right."""
    path = write(tmp_path / "a.jsonl", {"id": "1", "text": "a"}, b"x" * 500, b"{", {"id": "4", "text": "d"})
    found = list(read_jsonl(path, name="a", longest=100))

    assert ["1", "4"] == [record.id for record in records(found)]
    assert ["a:2", "a:3"] == [":".join(text.split(":")[:2]) for text in problems(found)]


@given(st.lists(st.binary(max_size=60), max_size=8))
def test_whatever_the_bytes_every_line_is_accounted_for(tmp_path_factory, lines):
    """Each line that is not blank is a record or a problem, and nothing raises."""
    data = b"\n".join(lines)
    path = tmp_path_factory.mktemp("any") / "any.jsonl"
    path.write_bytes(data)
    found = [item for item in read_jsonl(path) if not (isinstance(item, LoadProblem) and item.warning)]

    written = [line.removeprefix(b"\xef\xbb\xbf") if at == 0 else line for at, line in enumerate(data.split(b"\n"))]
    assert len(found) == sum(bool(line.strip()) for line in written)


def test_a_folder_gives_a_record_a_file_by_relative_path(tmp_path):
    """Ids are relative paths, titles first headings or file names, order is by name, hidden files are not read."""
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "x.md").write_text("# no")
    (tmp_path / "b" / "two.md").write_text("```\n# code\n```\n## Two ##\ntext")
    (tmp_path / "a.txt").write_text("# not a heading here")
    (tmp_path / ".hidden.md").write_text("# no")

    assert [("a.txt", "a.txt"), ("b/two.md", "Two")] == [(r.id, r.title) for r in records(read_records([Path()]))]


def test_invalid_utf8_in_a_text_is_replaced_and_said(tmp_path):
    """The text loads with U+FFFD, and a warning says so; U+FFFD that was written is no problem."""
    (tmp_path / "bad.md").write_bytes(b"caf\xe9 open")
    (tmp_path / "good.md").write_text("already \ufffd")
    found = list(read_records([Path()]))

    assert ["caf\ufffd open", "already \ufffd"] == [record.text for record in records(found)]
    assert ["bad.md: some bytes are not UTF-8 and were replaced"] == problems(found)


def test_loops_broken_links_and_pipes_are_reported(tmp_path):
    """A folder that contains itself ends, and what cannot be read is named."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "ok.md").write_text("fine")
    (tmp_path / "a" / "again").symlink_to(tmp_path)
    (tmp_path / "gone.md").symlink_to(tmp_path / "nowhere")
    (tmp_path / "self.md").symlink_to(tmp_path / "self.md")
    os.mkfifo(tmp_path / "pipe.md")
    found = list(read_records([Path()]))

    assert ["a/ok.md"] == [record.id for record in records(found)]
    assert ["a/again", "gone.md", "pipe.md", "self.md"] == [text.split(":")[0] for text in problems(found)]


def test_a_binary_file_is_refused_by_name(tmp_path):
    """Bytes with a NUL are no text, whatever the suffix says."""
    (tmp_path / "photo.md").write_bytes(b"\x89PNG\0\0")

    assert ["photo.md: a binary file, not text"] == problems(read_records([Path()]))


def test_a_file_beyond_the_limit_is_refused(tmp_path):
    """A file that is too large is reported, not cut."""
    (tmp_path / "long.txt").write_text("x" * 101)

    (problem,) = read_text_file(tmp_path / "long.txt", largest=100)
    assert "larger than 100 bytes" in str(problem)


def test_other_kinds_are_warned_of_in_a_folder_and_read_when_named(tmp_path):
    """A folder may hold anything; a file someone names is read as text."""
    (tmp_path / "notes.log").write_text("one line")

    assert [] == records(read_records([Path()]))
    assert ["notes.log: files of kind '.log' are not loaded"] == problems(read_records([Path()]))
    assert ["notes.log"] == [record.id for record in records(read_records([tmp_path / "notes.log"]))]


def test_a_missing_path_is_a_problem(tmp_path):
    """A path that is not there is named."""
    (problem,) = problems(read_records([tmp_path / "nothing"]))

    assert "cannot be read: No such file" in problem


def test_a_file_name_that_is_not_unicode_is_reported(tmp_path):
    """Such a name cannot be an id."""
    (tmp_path / os.fsdecode(b"caf\xe9.md")).write_text("text")

    assert ["caf?.md: the file's name is not valid Unicode"] == problems(read_records([Path()]))


def test_an_unreadable_folder_is_a_problem(tmp_path, monkeypatch):
    """Its neighbours are read all the same."""
    (tmp_path / "shut").mkdir()
    (tmp_path / "open.md").write_text("text")
    listdir = os.listdir

    def guarded(path):
        if str(path).endswith("shut"):
            raise PermissionError(13, "Permission denied")
        return listdir(path)

    monkeypatch.setattr(os, "listdir", guarded)

    found = list(read_records([Path()]))
    assert ["open.md"] == [record.id for record in records(found)]
    assert ["shut: cannot be read: Permission denied"] == problems(found)


def test_a_file_that_vanishes_is_a_problem(tmp_path):
    """Between listing and reading, files may go."""
    assert ["a.md: cannot be read: No such file or directory"] == problems(read_text_file(tmp_path / "a.md"))
    assert ["a: cannot be read: No such file or directory"] == problems(read_jsonl(tmp_path / "a", name="a"))


def test_files_of_two_folders_do_not_take_each_others_place(tmp_path):
    """An id starts with the folder as it was named."""
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "README.md").write_text(f"{folder} text")

    assert ["a/README.md", "b/README.md"] == [record.id for record in records(read_records([Path("a"), Path("b")]))]
    assert ["a/README.md"] == [record.id for record in records(read_records([tmp_path / "a"]))]


def test_a_link_out_of_the_folder_is_not_followed(tmp_path):
    """What was not named is not loaded, whatever links to it."""
    (tmp_path / "named").mkdir()
    (tmp_path / "secret.md").write_text("not for loading")
    (tmp_path / "named" / "link.md").symlink_to(tmp_path / "secret.md")
    (found,) = read_records([Path("named")])

    assert "a link to a target outside the given folder" == found.message
