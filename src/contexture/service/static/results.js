// The result of a request, from the summary to the details.
import { budgetBar } from "./budget.js";
import { cachingCard } from "./caching.js";
import { exportButtons } from "./copy.js";
import { el, number } from "./dom.js";
import { graph } from "./graph.js";
import { t } from "./i18n.js";
import { ledgerTable } from "./ledger.js";
import { prompt } from "./prompt.js";
import { runCard } from "./run.js";
import { sources } from "./sources.js";
import { timings } from "./timings.js";
import { candidateTitles, shorten } from "./titles.js";

/** All cards of a build; `buildWithBudget` builds again with another budget. */
export function results(build, { budget, buildWithBudget }) {
  const { kind, answer, executed, stored, prefix, before } = build;
  const candidates = new Map((stored?.capsule.candidates ?? []).map((each) => [each.id, each]));
  const found = { ...kind.read(answer.json, stored), kind: kind.name, candidates, titles: candidateTitles(stored), prefix };
  const limit = found.limit ?? budget();
  return [
    summary(answer, found, limit),
    requestLink(kind, build.body),
    notice(answer.json.degradations, "degraded", "notice warning"),
    notice(found.notes ?? [], "notes", "notice"),
    budgetBar(found, limit),
    executed && graph(executed),
    prompt(found),
    stored ? runCard(found, build) : null,
    found.sources?.length ? sources(found.sources) : null,
    ledgerTable(answer.json.ledger, { ...found, limit }, { budget, buildWithBudget }),
    cachingCard(prefix, found.tokens, before),
    timings(answer.timings),
    exportButtons(build, found.id),
  ].filter(Boolean);
}

/** What was asked, above the result on a narrow screen, where the form is below it. */
function requestLink(kind, body) {
  const toForm = (event) => {
    event.preventDefault();
    const field = document.querySelector(`#panel-${kind.name} form textarea`);
    field.focus();
    field.scrollIntoView({ block: "center" });
  };
  return el("a", { class: "jump", href: `#panel-${kind.name}`, text: t("request.change", { title: shorten(kind.title(body)) }), on: { click: toForm } });
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

function redactions(found) {
  const texts = found.parts.flatMap((part) => part.pieces.map((piece) => piece.text));
  return new Set(texts.flatMap((text) => text.match(/<[A-Z][A-Z_]*_\d+>/g) ?? [])).size;
}

function notice(lines, word, kind) {
  if (lines.length === 0) return null;
  const line = (each) =>
    el("li", {}, el("strong", { text: `${each.source}:` }), ` ${each.reason}`, each.command && [" ", el("code", { text: each.command })]);
  return el("div", { class: kind, role: "status" }, el("h3", { text: t(word) }), el("ul", {}, lines.map(line)));
}
