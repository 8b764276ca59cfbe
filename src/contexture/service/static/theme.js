// Light, dark, or what the system says.
import { keep, kept } from "./kept.js";

export const THEMES = ["auto", "light", "dark"];

export function paint(theme) {
  document.documentElement.dataset.theme = THEMES.includes(theme) ? theme : "auto";
  keep("theme", document.documentElement.dataset.theme);
}

export function firstTheme() {
  return kept("theme") ?? "auto";
}
