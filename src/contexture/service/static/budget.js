// What each section spends of the limit, and the share that is kept for it.
import { el, number } from "./dom.js";
import { t } from "./i18n.js";

/** One bar for the whole limit, and a line a section; a tick shows the share that a section has. */
export function budgetBar(found, limit) {
  const used = found.sections.filter((section) => section.tokens > 0);
  const left = Math.max(0, limit - found.tokens);
  const told = t("budget.told", { used: number(found.tokens), limit: number(limit) });
  const most = Math.max(...found.sections.flatMap(({ tokens, floor, cap }) => [tokens, floor ?? 0, cap ?? 0]));
  const shares = found.sections.filter((section) => section.floor || section.cap);
  return el(
    "section",
    { class: "card budget", "aria-label": t("budget") },
    el("div", { class: "between" }, el("h3", { text: t("budget") }), el("span", { class: "hint", text: told })),
    el("div", { class: "meter", role: "img", "aria-label": told }, used.map((each) => slice(each, limit))),
    el(
      "ul",
      { class: "legend" },
      used.map((each) => line(each.name, number(each.tokens))),
      line("free", number(left)),
    ),
    shares.length > 0 && el("ul", { class: "shares" }, shares.map((each) => share(each, most))),
  );
}

function slice(section, limit) {
  const title = `${t(`section.${section.name}`)} ${number(section.tokens)}`;
  return wide(el("span", { class: "slice", data: { section: section.name }, title }), section.tokens / limit);
}

function line(name, told) {
  return el(
    "li",
    { data: { section: name } },
    el("span", { class: "swatch" }),
    el("span", { text: `${t(`section.${name}`)} ${told}` }),
  );
}

/** A section against its own limits: what it spends, the share kept for it, and its cap where it has one. */
function share(section, most) {
  const told = [
    t("budget.floor", { n: number(section.floor ?? 0) }),
    ...(section.cap ? [t("budget.cap", { n: number(section.cap) })] : []),
  ].join("; ");
  return el(
    "li",
    { data: { section: section.name }, title: told },
    el("span", { text: t(`section.${section.name}`) }),
    el(
      "span",
      { class: "track" },
      wide(el("span", { class: "fillup" }), section.tokens / most),
      section.floor ? at(el("span", { class: "tick" }), section.floor / most) : null,
      section.cap ? at(el("span", { class: "tick cap" }), section.cap / most) : null,
    ),
    el("span", { class: "hint", text: `${number(section.tokens)} / ${number(section.cap ?? section.floor)}` }),
  );
}

function wide(node, share) {
  node.style.width = `${Math.min(100, 100 * share)}%`;
  return node;
}

function at(node, share) {
  node.style.left = `${Math.min(100, 100 * share)}%`;
  return node;
}
