// The origin of a piece of the prompt: record, characters and page.
import { requestBlob, requestJson } from "./api.js";
import { showDialog } from "./dialog.js";
import { el, fill } from "./dom.js";
import { t } from "./i18n.js";
import { renderText } from "./text.js";

/** Show what `piece` cites; if there is a picture of the page, the passage is framed in it. */
export function showCitation(piece, cites, source) {
  const picture = el("figure", { class: "page" });
  const content = el(
    "div",
    { class: "stack" },
    el("ul", { class: "cites" }, cites.map(line)),
    source?.image_url ? picture : el("div", { class: "quoted" }, renderText(piece.text)),
  );
  let address = "";
  const shown = showDialog("cite.title", content, { wide: Boolean(source?.image_url), closed: () => URL.revokeObjectURL(address) });
  if (source?.image_url) {
    drawPage(picture, source, cites).then(
      (url) => (address = url),
      () => fill(picture, el("p", { class: "hint", text: t("page.gone") })),
    );
  }
  return shown;
}

function line(each) {
  const page = each.page === null ? "" : `, ${t("page", { n: each.page })}`;
  return el(
    "li",
    {},
    el("strong", { text: each.title || each.record_id }),
    el("span", { text: `${page}, ${t("characters", { start: each.start, end: each.end })}` }),
    el("code", { title: t("hash"), text: each.hash.slice(0, 12) }),
  );
}

async function drawPage(figure, source, cites) {
  const place = source.image_url.replace(/\/image$/, "");
  const [picture, ...found] = await Promise.all([
    requestBlob(source.image_url),
    ...cites.map((each) => requestJson("GET", `${place}/regions?start=${each.start}&end=${each.end}`)),
  ]);
  const address = URL.createObjectURL(picture);
  const boxes = found.flatMap(({ json }) => json.regions).map(frameRegion);
  const image = el("img", { src: address, alt: t("page.of", { n: source.page, name: source.filename }) });
  fill(figure, el("div", { class: "sheet" }, image, boxes), el("figcaption", { text: t("page.of", { n: source.page, name: source.filename }) }));
  image.addEventListener("load", () => boxes[0]?.scrollIntoView({ block: "center" }), { once: true });
  return address;
}

function frameRegion({ box: [left, top, right, bottom] }) {
  const node = el("div", { class: "frame", "aria-hidden": "true" });
  const share = (value) => `${(value * 100).toFixed(2)}%`;
  Object.assign(node.style, { left: share(left), top: share(top), width: share(right - left), height: share(bottom - top) });
  return node;
}
