// The switch that simulates an outage of the memory service in a demonstration.
import { requestJson } from "./api.js";
import { el, showToast } from "./dom.js";
import { onLanguage, t } from "./i18n.js";

/** The switch and the state of the health monitor; `changed` is called when an outage starts or ends. */
export function outage(changed) {
  let state = "normal";
  const button = el(
    "button",
    { type: "button", role: "switch", id: "outage", class: "switch", "aria-checked": "false", on: { click: toggle } },
    el("span", { class: "knob", "aria-hidden": "true" }),
    el("span", { word: "outage" }),
  );
  const hint = el("p", { class: "hint" });

  async function toggle() {
    const broken = button.getAttribute("aria-checked") !== "true";
    if (await request("POST", { broken })) changed();
  }

  function refresh() {
    return request("GET");
  }

  async function request(method, body) {
    try {
      show((await requestJson(method, "/v1/demo/memory", body)).json);
      return true;
    } catch (failure) {
      showToast(failure.message);
      return false;
    }
  }

  function show(found) {
    button.setAttribute("aria-checked", String(found.broken));
    state = found.state;
    updateText();
  }

  function updateText() {
    hint.textContent = t(`outage.${state}`);
  }

  updateText();
  onLanguage(updateText);
  return { node: el("div", { class: "card stack" }, button, hint), refresh };
}
