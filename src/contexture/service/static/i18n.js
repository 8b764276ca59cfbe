// What the page says, in English and in Russian; a change of language changes what is already shown.
import { en } from "./words/en.js";
import { ru } from "./words/ru.js";
import { kept, keep } from "./kept.js";

const WORDS = { en, ru };
const heard = [];

export const LANGUAGES = { en: "English", ru: "Русский" };

/** The word for `key`, its `{name}`s filled in; a key that nobody translated is shown as it is. */
export function t(key, values = {}) {
  const said = WORDS[language()][key] ?? en[key] ?? key.split(".").pop().replaceAll("_", " ");
  return said.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

export function language() {
  return document.documentElement.lang === "ru" ? "ru" : "en";
}

/** Call `work` after each change of language. */
export function onLanguage(work) {
  heard.push(work);
}

export function speak(chosen) {
  document.documentElement.lang = chosen in WORDS ? chosen : "en";
  keep("language", document.documentElement.lang);
  document.title = t("title");
  for (const node of document.querySelectorAll("[data-word]")) node.textContent = t(node.dataset.word);
  for (const node of document.querySelectorAll("[data-word-label]")) {
    node.setAttribute("aria-label", t(node.dataset.wordLabel));
  }
  for (const work of heard) work();
}

/** The language that was chosen before, or the browser's. */
export function firstLanguage() {
  return kept("language") ?? (navigator.language.startsWith("ru") ? "ru" : "en");
}
