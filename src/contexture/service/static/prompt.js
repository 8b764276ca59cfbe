// The prompt as the model receives it, each part in the colour of its section.
import { el } from "./dom.js";
import { t } from "./i18n.js";
import { showCitation } from "./citation.js";
import { renderText } from "./text.js";

/** The parts in order; numbered pieces open their citations. */
export function prompt(found) {
  return el(
    "section",
    { class: "card prompt", "aria-label": t("prompt") },
    el("h3", { text: t("prompt") }),
    el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": t("prompt") }, found.parts.map((each) => renderPart(each, found))),
  );
}

function renderPart(part, found) {
  const isShared = part.at !== undefined && part.at < (found.prefix?.messages ?? 0);
  return el(
    "div",
    { class: "part", data: { section: part.section } },
    el(
      "div",
      { class: "part-head" },
      el("span", { class: "swatch", "aria-hidden": "true" }),
      el("span", { text: t(`section.${part.section}`) }),
      el("span", { class: "role", text: part.role }),
      isShared && el("span", { class: "role shared", text: t("caching.part") }),
    ),
    part.pieces.map((piece) => renderPiece(piece, found)),
  );
}

function renderPiece(piece, found) {
  const cites = piece.number === null ? [] : (found.cite(piece.number) ?? []);
  const open = cites.length
    ? el("button", {
        type: "button",
        class: "cite",
        text: `[${piece.number}]`,
        "aria-label": t("cite.open", { n: piece.number }),
        on: { click: () => showCitation(piece, cites, found.source?.(piece.number)) },
      })
    : null;
  return el("div", { class: "piece" }, open, el("div", { class: "piece-text" }, renderText(piece.text)));
}
