// Files as the routes take them, sent in parts that show how far they are.
import { upload } from "../api.js";
import { t } from "../i18n.js";
import { articles, base64, blocks, memories } from "./read.js";

const TOGETHER = 200; // rows in one request

/** Load one file as `kind`; what became of it as { added, unchanged, failed }. */
export async function send(kind, file, progress) {
  if (kind === "documents") return pages(file, progress);
  const read = { memories, articles, blocks }[kind];
  const rows = read(await file.text(), file.name);
  if (rows.length === 0) throw new Error(t("load.empty"));
  if (kind === "blocks") return inParts(rows, rows.length, kind, progress); // parents and children in one write
  return inParts(rows, TOGETHER, kind, progress);
}

async function pages(file, progress) {
  const body = { files: [{ filename: file.name, content: await base64(file) }] };
  const told = await upload("/v1/ingest/documents", body, (share) => progress(share < 1 ? share : null));
  return report(told, 1);
}

async function inParts(rows, size, kind, progress) {
  const whole = { added: 0, unchanged: 0, failed: [] };
  for (let at = 0; at < rows.length; at += size) {
    const some = rows.slice(at, at + size);
    const told = report(await upload(`/v1/ingest/${kind}`, { [kind]: some }, () => {}), some.length);
    whole.added += told.added;
    whole.unchanged += told.unchanged;
    whole.failed.push(...told.failed);
    progress(Math.min(1, (at + size) / rows.length));
  }
  return whole;
}

/** The four routes answer in their own words; these are what they have in common. */
function report(told, sent) {
  const failed = (told.failed ?? []).map((each) => (each.line ? `${each.line}: ${each.message}` : each.message));
  const added = told.added ?? told.new ?? told.ids?.length ?? sent;
  return { added: added + (told.changed ?? 0), unchanged: told.unchanged ?? 0, failed };
}
