// Tabs as the keyboard knows them: arrows move, Home and End jump, one tab stop for all.
import { el } from "./dom.js";

/** Buttons for `names` in `place`; `chosen` hears which one is shown. */
export function tabs(place, names, chosen) {
  const buttons = names.map((name) =>
    el("button", {
      type: "button",
      role: "tab",
      id: `tab-${name}`,
      class: "tab",
      word: `tab.${name}`,
      "aria-controls": `panel-${name}`,
      on: { click: () => show(name), keydown: (event) => moved(event, name) },
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

  function moved(event, name) {
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
