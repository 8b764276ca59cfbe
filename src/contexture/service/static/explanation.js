// Why a candidate is in the prompt or not, and the smallest change that would have admitted it.
import { requestJson } from "./api.js";
import { showDialog } from "./dialog.js";
import { el, fill, number } from "./dom.js";
import { t } from "./i18n.js";
import { reasonOf } from "./ledger.js";

/** Show the service's explanation of one entry of the ledger. */
export async function showExplanation(entry, found, { budget, buildWithBudget }) {
  const content = el("div", { class: "stack", "aria-busy": "true" }, el("p", { class: "hint", text: t("why.asking") }));
  const opened = showDialog("why.title", content);
  try {
    const result = await requestJson("GET", `/v1/builds/${found.id}/explain/${encodePath(entry.id)}`);
    fill(content, outcome(result.json, found), advice(result.json, () => opened.close(), { budget, buildWithBudget }));
  } catch (failure) {
    fill(content, el("p", { role: "alert", text: failure.message }));
  }
  content.setAttribute("aria-busy", "false");
}

function outcome({ candidate: entry }, found) {
  const candidate = found.candidates.get(entry.id);
  const signals = Object.entries(entry.signals);
  return [
    el(
      "p",
      {},
      el("span", { class: "state", data: { state: entry.state }, text: t(`state.${entry.state}`) }),
      ` ${t(`reason.${reasonOf(entry, found)}.long`)} `,
      entry.of && el("code", { text: entry.of }),
      entry.note && el("span", { class: "hint", text: entry.note }),
    ),
    el("p", { class: "hint" }, el("code", { text: entry.id })),
    candidate && el("blockquote", {}, candidate.title && el("strong", { text: candidate.title }), el("pre", { text: candidate.text })),
    signals.length > 0 &&
      el("dl", { class: "facts" }, signals.flatMap(([name, value]) => [el("dt", { text: t(`signal.${name}`) }), el("dd", { text: number(value, 4) })])),
  ].filter(Boolean);
}

function advice(result, close, { budget, buildWithBudget }) {
  if (result.candidate.state !== "dropped") return el("p", { class: "advice", text: t("why.in") });
  const ways = [];
  if (result.more_tokens !== null) ways.push(t("why.tokens", { n: number(result.more_tokens) }));
  if (result.score_needed !== null) {
    ways.push(t("why.score", { n: number(result.score_needed, 3), now: number(result.candidate.score, 3) }));
  }
  const needed = budget() + (result.more_tokens ?? 0);
  return el(
    "div",
    { class: "advice" },
    el("p", { text: ways.length ? t("why.ways", { ways: ways.join(t("why.or")) }) : t("why.never") }),
    result.more_tokens
      ? el("button", {
          type: "button",
          class: "primary",
          text: t("why.give", { n: number(result.more_tokens) }),
          on: {
            click: () => {
              close();
              buildWithBudget(needed);
            },
          },
        })
      : null,
  );
}

/** An id encoded for the path of a URL; slashes are kept. */
function encodePath(id) {
  return id.split("/").map(encodeURIComponent).join("/");
}
