// Tabs with keyboard support: arrow keys, Home and End; all tabs are one tab stop.
import { el } from "./dom.js";

/** Add buttons for `names` to `place`; `chosen` is called with the selected one. */
export function tabs(place, names, chosen) {
  const buttons = names.map((name) =>
    el("button", {
      type: "button",
      role: "tab",
      id: `tab-${name}`,
      class: "tab",
      word: `tab.${name}`,
      "aria-controls": `panel-${name}`,
      on: { click: () => show(name), keydown: (event) => onKeydown(event, name) },
    }),
  );
  place.append(...buttons);

  function show(name) {
    for (const [at, button] of buttons.entries()) {
      const on = names[at] === name;
      button.setAttribute("aria-selected", String(on));
      button.tabIndex = on ? 0 : -1;
    }
    history.replaceState(null, "", `#${name}`);
    chosen(name);
  }

  function onKeydown(event, name) {
    const at = names.indexOf(name);
    const to = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1 }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const next = (to + names.length) % names.length;
    show(names[next]);
    buttons[next].focus();
  }

  return show;
}
