// Texts of the page in English and Russian; changing the language updates the texts already shown.
import { en } from "./words/en.js";
import { ru } from "./words/ru.js";
import { loadItem, saveItem } from "./storage.js";

const WORDS = { en, ru };
const listeners = [];

export const LANGUAGES = { en: "English", ru: "Русский" };

/** The text for `key`, with its `{name}`s filled in; a missing key is shown as its last part. */
export function t(key, values = {}) {
  const text = WORDS[language()][key] ?? en[key] ?? key.split(".").pop().replaceAll("_", " ");
  return text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
}

export function language() {
  return document.documentElement.lang === "ru" ? "ru" : "en";
}

/** Call `work` after each change of language. */
export function onLanguage(work) {
  listeners.push(work);
}

export function setLanguage(chosen) {
  document.documentElement.lang = chosen in WORDS ? chosen : "en";
  saveItem("language", document.documentElement.lang);
  document.title = t("title");
  for (const node of document.querySelectorAll("[data-word]")) node.textContent = t(node.dataset.word);
  for (const node of document.querySelectorAll("[data-word-label]")) {
    node.setAttribute("aria-label", t(node.dataset.wordLabel));
  }
  for (const work of listeners) work();
}

/** The stored language, or the browser's. */
export function initialLanguage() {
  return loadItem("language") ?? (navigator.language.startsWith("ru") ? "ru" : "en");
}
