// Prompt caching: which beginning of the prompt is the same as in the build before.
import { el, number } from "./dom.js";
import { t } from "./i18n.js";
import { contentText } from "./parts.js";

/** How many messages and characters at the beginning are equal; null if there was no build before. */
export function sharedPrefix(before, now) {
  if (!before?.length || !now?.length) return null;
  const texts = [before, now].map((messages) => messages.map((each) => contentText(each.content)));
  const total = texts[1].reduce((sum, text) => sum + text.length, 0);
  let messages = 0;
  let characters = 0;
  for (const [at, text] of texts[1].entries()) {
    const other = before[at];
    if (!other || other.role !== now[at].role || other.name !== now[at].name) break;
    const equal = equalStart(texts[0][at], text);
    characters += equal;
    if (equal < text.length || equal < texts[0][at].length) break;
    messages += 1;
  }
  return { messages, all: now.length, characters, total, share: total ? characters / total : 0 };
}

/** A bar and a sentence; the tokens are an estimate from the share of characters. */
export function cachingCard(prefix, tokens, before) {
  const text = prefix
    ? t("caching.shared", {
        messages: number(prefix.messages),
        all: number(prefix.all),
        tokens: number(Math.round(prefix.share * tokens)),
        share: number(100 * prefix.share),
      })
    : t("caching.first");
  const bar = el("span", { class: "slice", data: { section: "history" } });
  bar.style.width = `${100 * (prefix?.share ?? 0)}%`;
  return el(
    "section",
    { class: "card caching", "aria-label": t("caching") },
    el("div", { class: "between" }, el("h3", { text: t("caching") }), prefix && el("span", { class: "hint", text: t("caching.before", { id: before }) })),
    el("div", { class: "meter", "aria-hidden": "true" }, bar),
    el("p", { class: "hint", text }),
  );
}

function equalStart(one, other) {
  const most = Math.min(one.length, other.length);
  let at = 0;
  while (at < most && one[at] === other[at]) at += 1;
  return at;
}
