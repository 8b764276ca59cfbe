// Time per phase, as measured by the service.
import { el, number } from "./dom.js";
import { t } from "./i18n.js";

/** One bar of phases; the service sends them in a header, so that equal builds have equal bodies. */
export function timings(found) {
  const phases = found.filter((phase) => phase.name !== "total");
  const total = found.find((phase) => phase.name === "total")?.ms ?? phases.reduce((sum, phase) => sum + phase.ms, 0);
  if (phases.length === 0) return null;
  return el(
    "section",
    { class: "card", "aria-label": t("timings") },
    el("div", { class: "between" }, el("h3", { text: t("timings") }), el("span", { class: "hint", text: t("ms", { n: number(total, 1) }) })),
    el("div", { class: "meter", "aria-hidden": "true" }, phases.map((phase, at) => slice(phase, at, total))),
    el("ul", { class: "legend" }, phases.map((phase, at) => line(phase, at))),
  );
}

function slice(phase, at, total) {
  const node = el("span", { class: "slice", data: { phase: at % 6 } });
  node.style.width = `${(100 * phase.ms) / total}%`;
  return node;
}

function line(phase, at) {
  return el(
    "li",
    { data: { phase: at % 6 } },
    el("span", { class: "swatch" }),
    el("span", { text: `${t(`phase.${phase.name}`)} ${t("ms", { n: number(phase.ms, phase.ms < 10 ? 2 : 0) })}` }),
  );
}
