// Light or dark theme, or the theme of the system.
import { saveItem, loadItem } from "./storage.js";

export const THEMES = ["auto", "light", "dark"];

export function setTheme(theme) {
  document.documentElement.dataset.theme = THEMES.includes(theme) ? theme : "auto";
  saveItem("theme", document.documentElement.dataset.theme);
}

export function initialTheme() {
  return loadItem("theme") ?? "auto";
}
