// Sends the prompt of a build to a model and shows the checked answer.
import { requestJson } from "./api.js";
import { showCitation } from "./citation.js";
import { el, fill } from "./dom.js";
import { t } from "./i18n.js";

const MARKER = /(\[\d+(?:, \d+)*\])/;
let modelNames = null; // asked once
let chosenModel = "";

/** The card: a model, the button, and the answer below it. */
export function runCard(found, kept) {
  const output = el("div", { class: "answer stack", "aria-live": "polite" });
  const models = el("select", { id: `run-model-${found.kind}`, on: { change: () => (chosenModel = models.value) } });
  const button = el("button", { type: "button", class: "primary run", text: t("run"), on: { click: run } });
  const node = el(
    "section",
    { class: "card run-card", "aria-label": t("run.title") },
    el(
      "div",
      { class: "between" },
      el("h3", { text: t("run.title") }),
      el("div", { class: "row" }, el("label", { class: "choice", for: models.id }, el("span", { text: t("run.model") })), models, button),
    ),
    output,
  );
  listModels().then((names) => fill(models, names.map((name) => el("option", { value: name, text: name, selected: name === chosenModel }))));
  if (kept.said) fill(output, checkedAnswer(kept.said, found));
  else fill(output, el("p", { class: "hint", text: t("run.hint") }));

  async function run() {
    button.disabled = true;
    fill(output, el("p", { class: "hint", role: "status", text: t("run.running") }));
    try {
      const body = { build_id: found.id, ...(models.value ? { model: models.value } : {}) };
      kept.said = (await requestJson("POST", "/v1/builds/answer", body)).json;
      fill(output, checkedAnswer(kept.said, found));
    } catch (failure) {
      fill(output, el("p", { class: "bad", role: "alert", text: failure.message }));
    }
    button.disabled = false;
  }

  return node;
}

async function listModels() {
  modelNames ??= requestJson("GET", "/health").then(
    ({ json }) => json.components.models?.names ?? [],
    () => [],
  );
  return modelNames;
}

function checkedAnswer(said, found) {
  const unsupported = new Set(said.unsupported.map((each) => each.sentence));
  return [
    el("p", { class: "answer-text" }, said.answer.split(MARKER).map((piece) => (MARKER.test(piece) ? markers(piece, found) : piece))),
    el("p", { class: "hint", text: t(said.extractive ? "run.extractive" : "run.by", { model: said.model }) }),
    unsupported.size > 0 &&
      el(
        "div",
        { class: "notice warning" },
        el("h3", { text: t("run.unsupported") }),
        el("ul", {}, said.unsupported.map((each) => el("li", {}, each.sentence, el("span", { class: "hint", text: ` ${t(`lack.${each.lack}`)} ${each.missing.join(", ")}` })))),
      ),
    said.removed_markers.length > 0 &&
      el("p", { class: "hint", text: t("run.removed", { markers: said.removed_markers.map((each) => each.marker).join(" ") }) }),
    said.degradations.length > 0 &&
      el("ul", {}, said.degradations.map((each) => el("li", {}, el("strong", { text: each.source }), ` ${each.reason}`))),
    !said.extractive && unsupported.size === 0 && said.cited.length > 0 && el("p", { class: "hint good", text: t("run.checked") }),
  ].filter(Boolean);
}

/** The numbers of a marker as buttons that open their sources. */
function markers(marker, found) {
  return marker.match(/\d+/g).map(Number).map((number) => {
    const cites = found.cite(number) ?? [];
    if (cites.length === 0) return `[${number}]`;
    const piece = found.parts.flatMap((part) => part.pieces).find((each) => each.number === number);
    return el("button", {
      type: "button",
      class: "cite",
      text: `[${number}]`,
      "aria-label": t("cite.open", { n: number }),
      on: { click: () => showCitation(piece ?? { text: "" }, cites, found.source?.(number)) },
    });
  });
}
