// What is in a file: rows of JSON, or plain text made into rows.
import { t } from "../i18n.js";

const BLOCK = ["id", "type", "text", "parent", "order", "properties", "readers", "author", "created", "modified"];

export function memories(text, name) {
  if (structured(name)) return rows(text, "memories");
  return paragraphs(text).map((said) => ({ text: said, type: name }));
}

export function articles(text, name) {
  if (structured(name)) return rows(text, "articles");
  const [title = name, ...rest] = paragraphs(text);
  return [{ id: name, title: title.replace(/^#+\s*/, ""), text: rest.join("\n\n") || title, source: name }];
}

export function blocks(text, name) {
  if (structured(name)) return rows(text, "blocks").flatMap((each, at) => flat(each, undefined, at));
  const page = { id: name, type: "page", text: name.replace(/\.\w+$/, "") };
  const below = paragraphs(text).map((said, at) => ({ ...block(said), id: `${name}-${at + 1}`, parent: name, order: at }));
  return [page, ...below];
}

/** A file's bytes as base64. */
export function base64(file) {
  return new Promise((done, failed) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => done(reader.result.slice(reader.result.indexOf(",") + 1)));
    reader.addEventListener("error", () => failed(reader.error));
    reader.readAsDataURL(file);
  });
}

function structured(name) {
  return /\.jsonl?$/i.test(name);
}

/** One object a line, or one document that is a list or holds one under `key`. */
function rows(text, key) {
  try {
    const whole = JSON.parse(text);
    return Array.isArray(whole) ? whole : (whole[key] ?? [whole]);
  } catch {
    return text.split("\n").filter((line) => line.trim()).map(parsed);
  }
}

function parsed(line, at) {
  try {
    return JSON.parse(line);
  } catch {
    throw new Error(t("load.line", { n: at + 1 }));
  }
}

function flat(given, parent, order) {
  const known = Object.fromEntries(Object.entries(given).filter(([name]) => BLOCK.includes(name)));
  const own = { order, ...(parent ? { parent } : {}), ...known };
  return [own, ...(given.children ?? []).flatMap((child, at) => flat(child, own.id, at))];
}

function paragraphs(text) {
  return text.split(/\n\s*\n/).map((each) => each.trim()).filter(Boolean);
}

function block(said) {
  const heading = /^(#{1,6})\s+(.*)$/.exec(said);
  return heading
    ? { type: "heading", text: heading[2], properties: { level: heading[1].length } }
    : { type: "paragraph", text: said };
}
