"""Measures over workspaces: what is read from tables and questions, and what the numbers mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from contexture import wiring
from contexture.cli.main import app
from contexture.errors import InvalidRequest
from contexture.evaluation.workspace import auc, load_databases, load_tasks
from support.workbench import Parts

TABLES = {
    "emails.csv": "email_id,inbox/outbox,sender/recipient,subject,sent_datetime,body\n"
    "01,inbox,nadia@atlas.com,Budget,2023-11-29 09:00:00,See the budget.\n",
    "calendar_events.csv": "event_id,event_name,participant_email,event_start,duration\n"
    "02,sync up,nadia@atlas.com,2023-12-01 09:00:00,30\n",
    "project_tasks.csv": "task_id,task_name,assigned_to_email,list_name,due_date,board\n"
    "03,Fix login,raj@atlas.com,Completed,2023-11-20,Back end\n",
    "customer_relationship_manager_data.csv": "customer_id,assigned_to_email,customer_name,status\n"
    "04,raj@atlas.com,Quinn Harris,Lead\n",
}
QUESTIONS = (
    "query,answer\n"
    '"Cancel my next meeting with nadia","[\'calendar.delete_event.func(event_id=""02"")\']"\n'
    '"Plot the visits","[\'analytics.create_plot.func(value=""visits"")\']"\n'
    '"Say hello",[]\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four small tables and three questions, one of which names a record."""
    for name, text in TABLES.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "queries_and_answers").mkdir()
    (tmp_path / "queries_and_answers" / "calendar_queries_and_answers.csv").write_text(QUESTIONS)
    return tmp_path


def test_only_questions_that_name_records_count(folder: Path) -> None:
    """A question counts when its answer has the id of a record, and knows which table it is from."""
    (task,) = load_tasks(folder)

    assert (task.query, task.named, task.domain) == ("Cancel my next meeting with nadia", {"event:02"}, "calendar")


def test_rows_are_known_by_their_ids(folder: Path) -> None:
    """Each table is a database, and its rows are called as answers name them."""
    rows = [row for document in load_databases(folder) for row in document.root.children]

    assert [row.known for row in rows] == ["email:01", "event:02", "task:03", "customer:04"]
    assert (rows[2].properties["due"], rows[2].properties["done"]) == ("2023-11-20", True)


def test_a_folder_without_questions_is_refused(tmp_path: Path) -> None:
    """What cannot be measured is said."""
    with pytest.raises(InvalidRequest, match="queries_and_answers"):
        load_tasks(tmp_path)


def test_pairs_and_ties() -> None:
    """A pair counts whole when the linked page scores higher, half when both score alike."""
    assert auc({"a": 0.9, "b": 0.1}, {"a"}, {"b", "c"}) == 1
    assert auc({"a": 0.5, "b": 0.5}, {"a"}, {"b"}) == 0.5
    assert auc({"b": 0.5}, {"a"}, {"b", "c"}) == 0.25
    assert auc({}, set(), {"b"}) == 1


def test_both_measures_on_the_command_line(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and notes are loaded into a store of their own and measured."""
    monkeypatch.setattr(wiring, "encoders", lambda _settings: Parts().encoders)
    notes = tmp_path / "notes"
    notes.mkdir()
    for name, text in {"Pump": "see [[Valve]]", "Valve": "closes", "Tea": "is hot", "Rain": "is wet"}.items():
        (notes / f"{name}.md").write_text(text)
    at = ["--home", str(tmp_path / "home"), "--json"]
    first = CliRunner().invoke(app, ["eval", "workspace", str(folder), "--tokens", "2000", *at])
    second = CliRunner().invoke(app, ["eval", "links", str(notes), *at])

    assert first.exit_code == second.exit_code == 0, first.output + second.output
    found = json.loads(first.stdout)
    assert (found["tokens"], found["queries"], found["inside"]) == (2_000, 1, 1.0)
    assert json.loads(second.stdout) == {
        "auc": 1.0, "pages": 4, "focused": 2, "blocks": 4, "links": 1, "unresolved": 0,
    }  # fmt: skip


def test_the_questions_of_workbench(eval_data: Path) -> None:
    """Of 380 questions 146 name records, all of which are in the tables."""
    asked = load_tasks(eval_data / "workbench")
    rows = {row.known for document in load_databases(eval_data / "workbench") for row in document.root.children}

    assert len(asked) == 146
    assert all(task.named <= rows for task in asked)
