// Elements are made of text and attributes only: nothing that is shown is ever parsed as HTML.
import { t } from "./i18n.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element; `props` are attributes, but for `class`, `text`, `word`, `label`, `data` and `on`. */
export function el(tag, props = {}, ...children) {
  return filled(document.createElement(tag), props, children);
}

/** The same for SVG. */
export function svg(tag, props = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), props, children);
}

/** Let `parent` hold these and nothing else. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return parent;
}

/** A number the way readers of the chosen language write it. */
export function number(value, digits = 0) {
  return value.toLocaleString(document.documentElement.lang, {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** Tell everyone, screen readers included, for a moment. */
export function say(text) {
  const place = document.getElementById("said");
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(say.timer);
  say.timer = setTimeout(() => place.classList.remove("shown"), 2600);
}

function filled(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "text") node.textContent = value;
    else if (name === "word") worded(node, "word", value, (said) => (node.textContent = said));
    else if (name === "label") worded(node, "wordLabel", value, (said) => node.setAttribute("aria-label", said));
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "on") for (const [event, heard] of Object.entries(value)) node.addEventListener(event, heard);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

function worded(node, place, key, put) {
  node.dataset[place] = key;
  put(t(key));
}
