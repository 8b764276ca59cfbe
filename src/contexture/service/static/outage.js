// The switch that breaks the memory service of a demonstration.
import { ask } from "./api.js";
import { el, say } from "./dom.js";
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
    if (await heard("POST", { broken })) changed();
  }

  function look() {
    return heard("GET");
  }

  async function heard(method, body) {
    try {
      show((await ask(method, "/v1/demo/memory", body)).json);
      return true;
    } catch (failure) {
      say(failure.message);
      return false;
    }
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
