// The switch that breaks the memory service of a demonstration.
import { ask } from "./api.js";
import { el } from "./dom.js";
import { onLanguage, t } from "./i18n.js";

/** The switch and what the health monitor says; `changed` is called when the service is broken or mended. */
export function outage(changed) {
  let state = "normal";
  const button = el(
    "button",
    { type: "button", role: "switch", id: "outage", class: "switch", "aria-checked": "false", on: { click: flip } },
    el("span", { class: "knob", "aria-hidden": "true" }),
    el("span", { word: "outage" }),
  );
  const told = el("p", { class: "hint" });

  async function flip() {
    const broken = button.getAttribute("aria-checked") !== "true";
    show((await ask("POST", "/v1/demo/memory", { broken })).json);
    changed();
  }

  async function look() {
    show((await ask("GET", "/v1/demo/memory")).json);
  }

  function show(found) {
    button.setAttribute("aria-checked", String(found.broken));
    state = found.state;
    tell();
  }

  function tell() {
    told.textContent = t(`outage.${state}`);
  }

  tell();
  onLanguage(tell);
  return { node: el("div", { class: "card stack" }, button, told), look };
}
