// Rows of a file: from JSON, or from plain text.
import { t } from "../i18n.js";

const BLOCK_FIELDS = ["id", "type", "text", "parent", "order", "properties", "readers", "author", "created", "modified"];

export function memories(text, name) {
  if (isJson(name)) return rows(text, "memories");
  return paragraphs(text).map((text) => ({ text, type: name }));
}

export function articles(text, name) {
  if (isJson(name)) return rows(text, "articles");
  const [title = name, ...rest] = paragraphs(text);
  return [{ id: name, title: title.replace(/^#+\s*/, ""), text: rest.join("\n\n") || title, source: name }];
}

export function blocks(text, name) {
  if (isJson(name)) return rows(text, "blocks").flatMap((each, at) => flattenBlock(each, undefined, at));
  const page = { id: name, type: "page", text: name.replace(/\.\w+$/, "") };
  const below = paragraphs(text).map((text, at) => ({ ...parseBlock(text), id: `${name}-${at + 1}`, parent: name, order: at }));
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

function isJson(name) {
  return /\.jsonl?$/i.test(name);
}

/** Parse one object per line, or one document that is a list or has a list under `key`. */
function rows(text, key) {
  try {
    const whole = JSON.parse(text);
    return Array.isArray(whole) ? whole : (whole[key] ?? [whole]);
  } catch {
    return text.split("\n").filter((line) => line.trim()).map(parseLine);
  }
}

function parseLine(line, at) {
  try {
    return JSON.parse(line);
  } catch {
    throw new Error(t("load.line", { n: at + 1 }));
  }
}

function flattenBlock(given, parent, order) {
  const known = Object.fromEntries(Object.entries(given).filter(([name]) => BLOCK_FIELDS.includes(name)));
  const own = { order, ...(parent ? { parent } : {}), ...known };
  return [own, ...(given.children ?? []).flatMap((child, at) => flattenBlock(child, own.id, at))];
}

function paragraphs(text) {
  return text.split(/\n\s*\n/).map((each) => each.trim()).filter(Boolean);
}

function parseBlock(text) {
  const heading = /^(#{1,6})\s+(.*)$/.exec(text);
  return heading
    ? { type: "heading", text: heading[2], properties: { level: heading[1].length } }
    : { type: "paragraph", text };
}
