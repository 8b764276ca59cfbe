// A build to take along: its JSON, the request as Python or curl, and the capsule that replays it.
import { asker, bytes, DEMO, USERS } from "./api.js";
import { dialog } from "./dialog.js";
import { el, say } from "./dom.js";
import { t } from "./i18n.js";

/** The buttons. */
export function copies(kind, body, answer, id) {
  const button = (word, work) => el("button", { type: "button", class: "quiet", text: t(word), on: { click: work } });
  return el(
    "div",
    { class: "row takeaway", role: "group", "aria-label": t("take") },
    button("copy.json", () => copy(answer.text)),
    button("copy.python", () => copy(python(kind, body))),
    button("copy.curl", () => copy(curl(kind, body))),
    button("capsule", () => save(id)),
    el("code", { class: "hint", text: id }),
  );
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say(t("copied"));
  } catch {
    dialog("copy.title", el("pre", { class: "quoted", tabindex: "0", text }));
  }
}

async function save(id) {
  try {
    const address = URL.createObjectURL(await bytes(`/v1/builds/${id}/capsule`));
    el("a", { href: address, download: `${id}.json` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
    say(t("capsule.saved", { id }));
  } catch (failure) {
    say(failure.message);
  }
}

export function curl(kind, body) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  return [
    `curl -s ${quoted(location.origin + kind.path)}`,
    "  -H 'Content-Type: application/json'",
    ...(asker.key ? ['  -H "Authorization: Bearer $CONTEXTURE_API_KEY"'] : []),
    ...(DEMO ? [`  -H ${quoted(`X-Contexture-User: ${asker.user}`)}`] : []),
    `  -d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n");
}

export function python(kind, body) {
  const groups = (USERS[asker.user] ?? []).map((name) => `${literal(name)}, `).join("");
  const scope = DEMO ? `Scope(tenant="demo", user=${literal(asker.user)}, groups=(${groups.trim()}))` : "Scope.local()";
  const { query, num_results: results, max_tokens: tokens, search_mode: mode } = body;
  const given =
    kind.name === "research"
      ? [query, results, mode !== "visual", mode !== "text"].map((each) => literal(each)).join(", ") + `, max_tokens=${tokens}`
      : literal(body, 8);
  return [
    "import contexture",
    "from contexture import Scope",
    "",
    "with contexture.open_sync() as ctx:",
    `    built = ctx.${kind.method}(`,
    `        ${given},`,
    `        scope=${scope},`,
    "    )",
    "",
    "print(built)",
    "",
  ].join("\n");
}

/** A JSON value as Python writes it; objects are spread over lines, `indent` deep. */
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
