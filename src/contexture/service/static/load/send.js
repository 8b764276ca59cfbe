// Sends files to the ingest routes, in batches, with progress.
import { upload } from "../api.js";
import { t } from "../i18n.js";
import { articles, base64, blocks, memories } from "./read.js";

const BATCH_SIZE = 200; // rows in one request

/** Load one file as `kind`; returns { added, unchanged, failed }. */
export async function send(kind, file, progress) {
  if (kind === "documents") return sendDocument(file, progress);
  const read = { memories, articles, blocks }[kind];
  const rows = read(await file.text(), file.name);
  if (rows.length === 0) throw new Error(t("load.empty"));
  if (kind === "blocks") return sendInBatches(rows, rows.length, kind, progress); // parents and children in one write
  return sendInBatches(rows, BATCH_SIZE, kind, progress);
}

async function sendDocument(file, progress) {
  const body = { files: [{ filename: file.name, content: await base64(file) }] };
  const answer = await upload("/v1/ingest/documents", body, (share) => progress(share < 1 ? share : null));
  return summarize(answer, 1);
}

async function sendInBatches(rows, size, kind, progress) {
  const total = { added: 0, unchanged: 0, failed: [] };
  for (let at = 0; at < rows.length; at += size) {
    const batch = rows.slice(at, at + size);
    const answer = summarize(await upload(`/v1/ingest/${kind}`, { [kind]: batch }, () => {}), batch.length);
    total.added += answer.added;
    total.unchanged += answer.unchanged;
    total.failed.push(...answer.failed);
    progress(Math.min(1, (at + size) / rows.length));
  }
  return total;
}

/** Map the answers of the four routes to one form. */
function summarize(answer, sent) {
  const failed = (answer.failed ?? []).map((each) => (each.line ? `${each.line}: ${each.message}` : each.message));
  const added = answer.added ?? answer.new ?? answer.ids?.length ?? sent;
  return { added: added + (answer.changed ?? 0), unchanged: answer.unchanged ?? 0, failed };
}
