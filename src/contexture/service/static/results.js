// The result of a request, from the summary to the details.
import { budgetBar } from "./budget.js";
import { exportButtons } from "./copy.js";
import { el, number } from "./dom.js";
import { graph } from "./graph.js";
import { t } from "./i18n.js";
import { ledgerTable } from "./ledger.js";
import { prompt } from "./prompt.js";
import { sources } from "./sources.js";
import { timings } from "./timings.js";

const MAX_TITLE = 72; // characters of a name in the ledger

/** All cards of a build; `buildWithBudget` builds again with another budget. */
export function results({ kind, body, answer, executed, stored }, { budget, buildWithBudget }) {
  const candidates = new Map((stored?.capsule.candidates ?? []).map((each) => [each.id, each]));
  const titles = new Map([...candidates].map(([id, each]) => [id, candidateTitle(each)]));
  const found = { ...kind.read(answer.json, stored), candidates, titles };
  const limit = found.limit ?? budget();
  return [
    summary(answer, found, limit),
    notice(answer.json.degradations, "degraded", "notice warning"),
    notice(found.notes ?? [], "notes", "notice"),
    budgetBar(found, limit),
    executed && graph(executed),
    prompt(found),
    found.sources?.length ? sources(found.sources) : null,
    ledgerTable(answer.json.ledger, found, { budget, buildWithBudget }),
    timings(answer.timings),
    exportButtons(kind, body, answer, found.id),
  ].filter(Boolean);
}

function summary({ json }, found, limit) {
  const count = (state) => json.ledger.filter((entry) => entry.state === state).length;
  const facts = [
    [t("stat.tokens"), `${number(found.tokens)} / ${number(limit)}`, "tokens"],
    [t("state.kept"), number(count("kept")), "kept"],
    [t("state.shortened"), number(count("shortened")), "shortened"],
    [t("state.dropped"), number(count("dropped")), "dropped"],
    [t("stat.redacted"), number(redactions(found)), "redacted"],
  ];
  return el(
    "dl",
    { class: "stats", "aria-label": t("summary") },
    facts.map(([name, value, kind]) =>
      el("div", { class: "stat", data: { kind } }, el("dt", { text: name }), el("dd", { text: value })),
    ),
  );
}

/** A candidate in the ledger: its title and the beginning of its text. */
function candidateTitle(candidate) {
  const text = [candidate.title, candidate.text].filter(Boolean).join(": ").replace(/\s+/g, " ").trim();
  return text.length > MAX_TITLE ? `${text.slice(0, MAX_TITLE).trimEnd()}…` : text;
}

function redactions(found) {
  const texts = found.parts.flatMap((part) => part.pieces.map((piece) => piece.text));
  return new Set(texts.flatMap((text) => text.match(/<[A-Z][A-Z_]*_\d+>/g) ?? [])).size;
}

function notice(lines, word, kind) {
  if (lines.length === 0) return null;
  const line = (each) => el("li", {}, el("strong", { text: each.source }), ` ${each.reason}`);
  return el("div", { class: kind, role: "status" }, el("h3", { text: t(word) }), el("ul", {}, lines.map(line)));
}
