// The builds of this browser tab, newest first; each can be opened again and compared with the one that is shown.
import { el, fill, number } from "./dom.js";
import { onLanguage, t } from "./i18n.js";
import { formatLink } from "./link.js";
import { loadItem, saveItem } from "./storage.js";

const MAX_BUILDS = 40;
const SHOWN_BUILDS = 6;

/** The list; `open` and `compare` are called with the entry that is chosen. */
export function buildHistory({ open, compare }) {
  let entries = load();
  let shown = null;
  let all = false;
  const list = el("ol", { class: "builds" });
  const more = el("button", { type: "button", class: "quiet", on: { click: showAll } });
  const node = el(
    "section",
    { class: "card", label: "history" },
    el("h2", { class: "small-heading", word: "history" }),
    el("p", { class: "hint", word: "history.hint" }),
    list,
    more,
  );
  onLanguage(draw);
  draw();

  /** Add a build, or move it to the front; it is the one that is shown. */
  function add(entry) {
    entries = [entry, ...entries.filter((each) => each.id !== entry.id)].slice(0, MAX_BUILDS);
    shown = entry.id;
    saveItem("builds", JSON.stringify(entries), "sessionStorage");
    draw();
  }

  function showAll() {
    all = true;
    draw();
  }

  function draw() {
    const seen = all ? entries : entries.slice(0, SHOWN_BUILDS);
    fill(list, seen.map(row));
    node.hidden = entries.length === 0;
    more.hidden = seen.length === entries.length;
    more.textContent = t("ledger.more", { n: number(entries.length - seen.length) });
  }

  function row(entry) {
    const current = entry.id === shown;
    const title = entry.title || t("history.untitled");
    return el(
      "li",
      { "aria-current": current ? "true" : null },
      el("a", { href: formatLink(entry), class: "build-link", text: title, on: { click: (event) => follow(event, entry) } }),
      el("span", { class: "hint", text: describe(entry) }),
      current
        ? el("span", { class: "hint", text: t("history.shown") })
        : el("button", {
            type: "button",
            class: "compare",
            text: t("compare"),
            "aria-label": t("compare.with", { title }),
            on: { click: () => compare(entry) },
          }),
    );
  }

  function follow(event, entry) {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // another tab or window
    event.preventDefault();
    open(entry);
  }

  return { node, add, current: () => entries.find((each) => each.id === shown) };
}

function describe(entry) {
  const parts = [
    t(`tab.${entry.kind}`),
    t("history.tokens", { used: number(entry.tokens), limit: number(entry.limit) }),
    entry.user,
    new Date(entry.now).toLocaleTimeString(document.documentElement.lang),
  ];
  return parts.filter(Boolean).join(" · ");
}

function load() {
  try {
    return JSON.parse(loadItem("builds", "sessionStorage") ?? "[]");
  } catch {
    return [];
  }
}
