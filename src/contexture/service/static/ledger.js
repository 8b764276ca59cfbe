// The ledger as a table: sortable, filtered by state, with an explanation for every candidate.
import { el, fill, number } from "./dom.js";
import { showExplanation } from "./explanation.js";
import { t } from "./i18n.js";

const COLUMNS = [
  { name: "id", value: (entry) => entry.id },
  { name: "section", value: (entry) => t(`section.${entry.section}`) },
  { name: "state", value: (entry) => ["kept", "shortened", "dropped"].indexOf(entry.state) },
  { name: "reason", value: (entry) => t(`reason.${entry.reason}`) },
  { name: "tokens", value: (entry) => -entry.tokens },
  { name: "score", value: (entry) => -entry.score },
];
const STATES = ["all", "kept", "shortened", "dropped"];
const FRAME_TOKENS = 32; // more than the label of a candidate takes
const MAX_SIGNALS = 4; // shown in a row; the explanation has all
const INITIAL_ROWS = 12; // rows shown until "show more" is used
const view = { column: "state", down: false, state: "all" };

/** The table over `entries`. */
export function ledgerTable(entries, found, options) {
  const scale = scales(entries);
  const body = el("tbody");
  const showMore = el("button", { type: "button", class: "quiet", on: { click: () => draw(true) } });
  const heads = COLUMNS.map((column) => head(column, sort));
  const filters = STATES.map((state) => filter(state, entries, filterBy));
  const table = el(
    "table",
    { class: "ledger" },
    el("caption", { class: "hidden", text: t("ledger") }),
    el("thead", {}, el("tr", {}, heads, el("th", { scope: "col", text: t("column.signals") }), el("th", { scope: "col" }, el("span", { class: "hidden", text: t("why") })))),
    body,
  );
  draw(false);

  function draw(all) {
    const column = COLUMNS.find((each) => each.name === view.column);
    const rows = entries
      .filter((entry) => view.state === "all" || entry.state === view.state)
      .sort((one, other) => order(column.value(one), column.value(other)) * (view.down ? -1 : 1) || other.score - one.score);
    const shown = all ? rows : rows.slice(0, INITIAL_ROWS);
    fill(body, shown.length ? shown.map((entry) => row(entry, scale, found, options)) : emptyRow(entries));
    showMore.hidden = shown.length === rows.length;
    showMore.textContent = t("ledger.more", { n: rows.length - shown.length });
    heads.forEach((node, at) => markSorted(node, COLUMNS[at].name));
    filters.forEach((node, at) => node.setAttribute("aria-pressed", String(STATES[at] === view.state)));
  }

  function sort(name) {
    view.down = view.column === name ? !view.down : false;
    view.column = name;
    draw(showMore.hidden);
  }

  function filterBy(state) {
    view.state = state;
    draw(false);
  }

  return el(
    "section",
    { class: "card", "aria-label": t("ledger") },
    el("div", { class: "between" }, el("h3", { text: t("ledger") }), el("div", { class: "chips", role: "group", "aria-label": t("ledger.filter") }, filters)),
    el("div", { class: "scroll wide", tabindex: "0", role: "group", "aria-label": t("ledger") }, table),
    showMore,
  );
}

function head(column, sort) {
  return el(
    "th",
    { scope: "col", "aria-sort": "none", class: `column-${column.name}` },
    el("button", { type: "button", text: t(`column.${column.name}`), on: { click: () => sort(column.name) } }),
  );
}

function markSorted(node, name) {
  const on = view.column === name;
  node.setAttribute("aria-sort", on ? (view.down ? "descending" : "ascending") : "none");
}

function filter(state, entries, filterBy) {
  const count = state === "all" ? entries.length : entries.filter((entry) => entry.state === state).length;
  const text = `${t(state === "all" ? "ledger.all" : `state.${state}`)} ${number(count)}`;
  return el("button", { type: "button", class: "chip", data: { state }, text, on: { click: () => filterBy(state) } });
}

function row(entry, scale, found, options) {
  const note = [entry.of && t("of", { id: entry.of }), entry.note].filter(Boolean).join("; ");
  return el(
    "tr",
    { data: { state: entry.state } },
    el("th", { scope: "row", class: "column-id" }, titleSpan(found.titles?.get(entry.id)), el("code", { text: entry.id })),
    el("td", { data: { label: t("column.section") } }, el("span", { class: "tag", data: { section: section(entry) }, text: t(`section.${entry.section}`) })),
    el("td", { data: { label: t("column.state") } }, el("span", { class: "state", data: { state: entry.state }, text: t(`state.${entry.state}`) })),
    el("td", { data: { label: t("column.reason") } }, t(`reason.${reasonOf(entry, found)}`), note && el("span", { class: "hint", text: note })),
    el("td", { class: "number", data: { label: t("column.tokens") }, text: number(entry.tokens) }),
    el("td", { class: "number", data: { label: t("column.score") }, text: number(entry.score, 3) }),
    el("td", { data: { label: t("column.signals") } }, signals(entry.signals, scale)),
    el("td", {}, el("button", { type: "button", class: "why", text: t("why"), "aria-label": t("why.of", { id: entry.id }), on: { click: () => showExplanation(entry, found, options) } })),
  );
}

/** The reason of an entry; what is shorter although it would fit in full was shortened by the limit of its section. */
export function reasonOf(entry, found) {
  if (entry.reason !== "made_to_fit" || !found.limit) return entry.reason;
  const full = Math.max(0, ...Object.values(found.candidates.get(entry.id)?.tokens ?? {}));
  const isCapped = full > 0 && full - entry.tokens + FRAME_TOKENS < found.limit - found.tokens;
  return isCapped ? "capped" : entry.reason;
}

function titleSpan(title) {
  return title ? el("span", { class: "candidate-title", text: title }) : null;
}

function section(entry) {
  return entry.section === "snippets" ? "memory" : entry.section;
}

/** The largest signals by name, as small bars; signals above 1 are scaled to the largest in the table. */
function signals(given, scale) {
  const largest = Object.entries(given)
    .filter(([name, value]) => scale[name] && value > 0)
    .map(([name, value]) => ({ name, value, share: Math.min(1, value / scale[name]) }))
    .sort((one, other) => other.share - one.share)
    .slice(0, MAX_SIGNALS);
  return el("ul", { class: "signals" }, largest.map(({ name, value, share }) => {
    const bar = el("span", { class: "fillup" });
    bar.style.width = `${100 * share}%`;
    return el(
      "li",
      { class: "signal" },
      el("span", { class: "signal-name", text: t(`signal.${name}`) }),
      el("span", { class: "track", "aria-hidden": "true" }, bar),
      el("span", { class: "hint", text: number(value, 2) }),
    );
  }));
}

function scales(entries) {
  const found = {};
  for (const entry of entries) {
    for (const [name, value] of Object.entries(entry.signals)) {
      if (value > 0) found[name] = Math.max(found[name] ?? 1, value);
    }
  }
  return found;
}

function emptyRow(entries) {
  const text = t(entries.length ? "ledger.none" : "ledger.empty");
  return el("tr", {}, el("td", { colspan: COLUMNS.length + 2, class: "empty", text }));
}

function order(one, other) {
  return typeof one === "string" ? one.localeCompare(other) : one - other;
}
