// Text of a prompt or a source: tables in Markdown as tables, placeholders marked, everything else as it is.
import { el } from "./dom.js";
import { t } from "./i18n.js";

const REDACTED = /(<[A-Z][A-Z_]*_\d+>|§§secret\([^)]*\))/;
const ROW = /^\s*\|.*\|\s*$/;
const RULE = /^\s*\|(\s*:?-{3,}:?\s*\|)+\s*$/;
const FIGURE = /^[($€£₽\s–—-]*[\d—–-][\d\s,.()%$€£₽–—-]*$/;

/** The nodes of a text, in order. */
export function renderText(text) {
  const lines = text.split("\n");
  const nodes = [];
  let plain = [];
  const flush = () => {
    if (plain.some((line) => line.trim())) nodes.push(el("pre", {}, markRedactions(plain.join("\n"))));
    plain = [];
  };
  for (let at = 0; at < lines.length; at += 1) {
    if (!ROW.test(lines[at]) || !RULE.test(lines[at + 1] ?? "")) {
      plain.push(lines[at]);
      continue;
    }
    let end = at + 2;
    while (end < lines.length && ROW.test(lines[end])) end += 1;
    flush();
    nodes.push(renderTable(lines[at], lines.slice(at + 2, end)));
    at = end - 1;
  }
  flush();
  return nodes;
}

function renderTable(head, rows) {
  return el(
    "div",
    { class: "scroll wide", tabindex: "0", role: "group", "aria-label": t("table") },
    el(
      "table",
      { class: "quoted-table" },
      el("thead", {}, el("tr", {}, splitCells(head).map((cell) => el("th", { scope: "col" }, markRedactions(cell))))),
      el("tbody", {}, rows.map((row) => el("tr", {}, splitCells(row).map(renderCell)))),
    ),
  );
}

function renderCell(cell) {
  return el("td", { class: FIGURE.test(cell) ? "figure" : null }, markRedactions(cell));
}

function splitCells(row) {
  const inside = row.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inside.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function markRedactions(text) {
  return text
    .split(REDACTED)
    .map((each) => (REDACTED.test(each) ? el("mark", { class: "redacted", title: t("redacted"), text: each }) : each));
}
