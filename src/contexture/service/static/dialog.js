// A modal dialog with a heading and a close button; it is removed when it is closed.
import { el } from "./dom.js";

/** Show `content` under the heading `word`; returns the dialog. */
export function showDialog(word, content, { wide = false, closed = () => {} } = {}) {
  const id = `dialog-${word.replaceAll(".", "-")}`;
  const node = el(
    "dialog",
    { class: wide ? "dialog wide" : "dialog", "aria-labelledby": id },
    el(
      "div",
      { class: "dialog-head" },
      el("h2", { id, word }),
      el("button", { type: "button", class: "close", label: "close", on: { click: () => node.close() } }, "×"),
    ),
    content,
  );
  node.addEventListener("close", () => {
    node.remove();
    closed();
  });
  node.addEventListener("click", (event) => event.target === node && node.close());
  document.body.append(node);
  node.showModal();
  return node;
}
