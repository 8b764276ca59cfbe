// Tokens that each section uses, and the share reserved for it.
import { el, number } from "./dom.js";
import { t } from "./i18n.js";

/** One bar for the whole limit, and one line per section with a tick at its share. */
export function budgetBar(found, limit) {
  const used = found.sections.filter((section) => section.tokens > 0);
  const left = Math.max(0, limit - found.tokens);
  const label = t("budget.used", { used: number(found.tokens), limit: number(limit) });
  const most = Math.max(...found.sections.flatMap(({ tokens, floor, cap }) => [tokens, floor ?? 0, cap ?? 0]));
  const shares = found.sections.filter((section) => section.floor || section.cap);
  return el(
    "section",
    { class: "card budget", "aria-label": t("budget") },
    el("div", { class: "between" }, el("h3", { text: t("budget") }), el("span", { class: "hint", text: label })),
    el("div", { class: "meter", role: "img", "aria-label": label }, used.map((each) => slice(each, limit))),
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
  return setWidth(el("span", { class: "slice", data: { section: section.name }, title }), section.tokens / limit);
}

function line(name, label) {
  return el(
    "li",
    { data: { section: name } },
    el("span", { class: "swatch" }),
    el("span", { text: `${t(`section.${name}`)} ${label}` }),
  );
}

/** A section compared with its limits: tokens used, reserved share, and cap if it has one. */
function share(section, most) {
  const label = [
    t("budget.floor", { n: number(section.floor ?? 0) }),
    ...(section.cap ? [t("budget.cap", { n: number(section.cap) })] : []),
  ].join("; ");
  return el(
    "li",
    { data: { section: section.name }, title: label },
    el("span", { text: t(`section.${section.name}`) }),
    el(
      "span",
      { class: "track" },
      setWidth(el("span", { class: "fillup" }), section.tokens / most),
      section.floor ? setLeft(el("span", { class: "tick" }), section.floor / most) : null,
      section.cap ? setLeft(el("span", { class: "tick cap" }), section.cap / most) : null,
    ),
    el("span", { class: "hint", text: `${number(section.tokens)} / ${number(section.cap ?? section.floor)}` }),
  );
}

function setWidth(node, share) {
  node.style.width = `${Math.min(100, 100 * share)}%`;
  return node;
}

function setLeft(node, share) {
  node.style.left = `${Math.min(100, 100 * share)}%`;
  return node;
}
