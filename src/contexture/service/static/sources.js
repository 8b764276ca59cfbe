// The sources of a research context as thumbnails of their pages.
import { requestBlob } from "./api.js";
import { showCitation } from "./citation.js";
import { el } from "./dom.js";
import { t } from "./i18n.js";

/** One card per source; it opens the page at the cited passage. */
export function sources(found) {
  return el(
    "section",
    { class: "card", "aria-label": t("sources") },
    el("h3", { text: t("sources") }),
    el("div", { class: "sources" }, found.map(card)),
  );
}

function card(source, at) {
  const name = t("page.of", { n: source.page, name: source.filename });
  const picture = el("div", { class: "thumb" }, el("span", { text: source.extension }));
  if (source.thumbnail_url) {
    requestBlob(source.thumbnail_url).then((found) => {
      const image = el("img", { src: URL.createObjectURL(found), alt: "" });
      image.addEventListener("load", () => URL.revokeObjectURL(image.src), { once: true });
      picture.replaceChildren(image);
    }, () => {});
  }
  return el(
    "button",
    {
      type: "button",
      class: "source",
      on: { click: () => showCitation({ text: source.markdown_content }, source.citations, source) },
    },
    picture,
    el("span", { class: "source-name", text: `[${at + 1}] ${name}` }),
    el("span", { class: "hint", text: source.parent_heading ?? "" }),
  );
}
