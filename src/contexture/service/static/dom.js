// Elements are created from text and attributes only: no content is parsed as HTML.
import { t } from "./i18n.js";

const SVG = "http://www.w3.org/2000/svg";

/** Create an element; `props` are attributes, except `class`, `text`, `word`, `label`, `data` and `on`. */
export function el(tag, props = {}, ...children) {
  return applyProps(document.createElement(tag), props, children);
}

/** Create an SVG element. */
export function svg(tag, props = {}, ...children) {
  return applyProps(document.createElementNS(SVG, tag), props, children);
}

/** Replace the children of `parent`. */
export function fill(parent, ...children) {
  parent.replaceChildren(...children.flat().filter((each) => each !== null && each !== undefined && each !== false));
  return parent;
}

/** Format a number in the chosen language. */
export function number(value, digits = 0) {
  return value.toLocaleString(document.documentElement.lang, {
    minimumFractionDigits: digits,
    maximumFractionDigits: digits,
  });
}

/** Show a short message, also to screen readers. */
export function showToast(text) {
  const place = document.getElementById("toast");
  place.textContent = text;
  place.classList.add("shown");
  clearTimeout(showToast.timer);
  showToast.timer = setTimeout(() => place.classList.remove("shown"), 2600);
}

function applyProps(node, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.setAttribute("class", value);
    else if (name === "text") node.textContent = value;
    else if (name === "word") translate(node, "word", value, (text) => (node.textContent = text));
    else if (name === "label") translate(node, "wordLabel", value, (text) => node.setAttribute("aria-label", text));
    else if (name === "data") Object.assign(node.dataset, value);
    else if (name === "on") for (const [event, listener] of Object.entries(value)) node.addEventListener(event, listener);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(2).filter((each) => each !== null && each !== undefined && each !== false));
  return node;
}

function translate(node, place, key, apply) {
  node.dataset[place] = key;
  apply(t(key));
}
