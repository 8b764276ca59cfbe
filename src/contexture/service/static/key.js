// Asks for an API key; it is stored for this tab only.
import { caller, setKey } from "./api.js";
import { showDialog } from "./dialog.js";
import { el } from "./dom.js";

/** Ask for a key, then call `retry`. */
export function askForKey(retry) {
  const field = el("input", { id: "key", type: "password", autocomplete: "off", spellcheck: "false", value: caller.key });
  const form = el(
    "form",
    { class: "stack", on: { submit: onSubmit } },
    el("p", { class: "hint", word: "key.why" }),
    el("label", { class: "field", for: "key" }, el("span", { word: "key.label" }), field),
    el("div", { class: "row" }, el("button", { type: "submit", class: "primary", word: "key.use" })),
  );
  const opened = showDialog("key.title", form);
  field.focus();

  function onSubmit(event) {
    event.preventDefault();
    setKey(field.value.trim());
    opened.close();
    retry();
  }
}
