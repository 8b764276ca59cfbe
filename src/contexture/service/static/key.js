// Asks for a key where the service wants one; it stays in this tab.
import { asker, useKey } from "./api.js";
import { dialog } from "./dialog.js";
import { el } from "./dom.js";

/** Ask for a key and do `again` once there is one. */
export function changeKey(again) {
  const field = el("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", value: asker.key });
  const form = el(
    "form",
    { class: "stack", on: { submit: given } },
    el("p", { class: "hint", word: "key.why" }),
    el("label", { class: "field", for: "key" }, el("span", { word: "key.label" }), field),
    el("div", { class: "row" }, el("button", { type: "submit", class: "primary", word: "key.use" })),
  );
  const shown = dialog("key.title", form);
  field.focus();

  function given(event) {
    event.preventDefault();
    useKey(field.value.trim());
    shown.close();
    again();
  }
}
