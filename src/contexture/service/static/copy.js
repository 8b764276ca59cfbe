// Export of a build: its JSON, the request as Python or curl, and the capsule.
import { caller, DEMO, requestBlob, USERS } from "./api.js";
import { showDialog } from "./dialog.js";
import { el, showToast } from "./dom.js";
import { t } from "./i18n.js";

/** The buttons that copy or download. */
export function exportButtons(kind, body, answer, id) {
  const button = (word, work) => el("button", { type: "button", class: "quiet", text: t(word), on: { click: work } });
  return el(
    "div",
    { class: "row export", role: "group", "aria-label": t("export") },
    button("copy.json", () => copy(answer.text)),
    button("copy.python", () => copy(python(kind, body))),
    button("copy.curl", () => copy(curl(kind, body))),
    button("capsule", () => downloadCapsule(id)),
    el("code", { class: "hint", text: id }),
  );
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    showToast(t("copied"));
  } catch {
    showDialog("copy.title", el("pre", { class: "quoted", tabindex: "0", text }));
  }
}

async function downloadCapsule(id) {
  try {
    const address = URL.createObjectURL(await requestBlob(`/v1/builds/${id}/capsule`));
    el("a", { href: address, download: `${id}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    showToast(t("capsule.saved", { id }));
  } catch (failure) {
    showToast(failure.message);
  }
}

export function curl(kind, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  return [
    `curl -s ${quoted(location.origin + kind.path)}`,
    "  -H 'Content-Type: application/json'",
    ...(caller.key ? ['  -H "Authorization: Bearer $CONTEXTURE_API_KEY"'] : []),
    ...(DEMO ? [`  -H ${quoted(`X-Contexture-User: ${caller.user}`)}`] : []),
    `  -d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n");
}

export function python(kind, body) {
  const groups = (USERS[caller.user] ?? []).map((name) => `${literal(name)}, `).join("");
  const scope = DEMO ? `Scope(tenant="demo", user=${literal(caller.user)}, groups=(${groups.trim()}))` : "Scope.local()";
  const { query, num_results: results, max_tokens: tokens, search_mode: mode } = body;
  const args =
    kind.name === "research"
      ? [query, results, mode !== "visual", mode !== "text"].map((each) => literal(each)).join(", ") + `, max_tokens=${tokens}`
      : literal(body, 8);
  return [
    "import contexture",
    "from contexture import Scope",
    "",
    "with contexture.open_sync() as ctx:",
    `    built = ctx.${kind.method}(`,
    `        ${args},`,
    `        scope=${scope},`,
    "    )",
    "",
    "print(built)",
    "",
  ].join("\n");
}

/** A JSON value as a Python literal; objects take several lines, indented by `indent`. */
function literal(value, indent = 0) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = " ".repeat(indent + 4);
  const close = " ".repeat(indent);
  const items = Array.isArray(value)
    ? value.map((each) => literal(each, indent + 4))
    : Object.entries(value).map(([name, each]) => `${JSON.stringify(name)}: ${literal(each, indent + 4)}`);
  const [left, right] = Array.isArray(value) ? "[]" : "{}";
  return items.length ? `${left}\n${items.map((item) => `${inner}${item},\n`).join("")}${close}${right}` : left + right;
}
