// Why a candidate ended as it did, and the least that would have let it in.
import { ask } from "./api.js";
import { dialog } from "./dialog.js";
import { el, fill, number } from "./dom.js";
import { t } from "./i18n.js";

/** Ask the service about one entry of the ledger and show what it says. */
export async function why(entry, found, { budget, more }) {
  const content = el("div", { class: "stack", "aria-busy": "true" }, el("p", { class: "hint", text: t("why.asking") }));
  const shown = dialog("why.title", content);
  try {
    const told = await ask("GET", `/v1/builds/${found.id}/explain/${path(entry.id)}`);
    fill(content, story(told.json, found.candidates.get(entry.id)), advice(told.json, () => shown.close(), { budget, more }));
  } catch (failure) {
    fill(content, el("p", { role: "alert", text: failure.message }));
  }
  content.setAttribute("aria-busy", "false");
}

function story({ candidate: entry }, candidate) {
  const signals = Object.entries(entry.signals);
  return [
    el(
      "p",
      {},
      el("span", { class: "state", data: { state: entry.state }, text: t(`state.${entry.state}`) }),
      ` ${t(`reason.${entry.reason}.long`)} `,
      entry.of && el("code", { text: entry.of }),
      entry.note && el("span", { class: "hint", text: entry.note }),
    ),
    el("p", { class: "hint" }, el("code", { text: entry.id })),
    candidate && el("blockquote", {}, candidate.title && el("strong", { text: candidate.title }), el("pre", { text: candidate.text })),
    signals.length > 0 &&
      el("dl", { class: "facts" }, signals.flatMap(([name, value]) => [el("dt", { text: t(`signal.${name}`) }), el("dd", { text: number(value, 4) })])),
  ].filter(Boolean);
}

function advice(told, done, { budget, more }) {
  if (told.candidate.state !== "dropped") return el("p", { class: "advice", text: t("why.in") });
  const ways = [];
  if (told.more_tokens !== null) ways.push(t("why.tokens", { n: number(told.more_tokens) }));
  if (told.score_needed !== null) {
    ways.push(t("why.score", { n: number(told.score_needed, 3), now: number(told.candidate.score, 3) }));
  }
  const needed = budget() + (told.more_tokens ?? 0);
  return el(
    "div",
    { class: "advice" },
    el("p", { text: ways.length ? t("why.ways", { ways: ways.join(t("why.or")) }) : t("why.never") }),
    told.more_tokens
      ? el("button", {
          type: "button",
          class: "primary",
          text: t("why.give", { n: number(told.more_tokens) }),
          on: {
            click: () => {
              done();
              more(needed);
            },
          },
        })
      : null,
  );
}

/** An id as the path of an address: its slashes stay. */
function path(id) {
  return id.split("/").map(encodeURIComponent).join("/");
}
