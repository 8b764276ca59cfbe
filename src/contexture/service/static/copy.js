// Export of a build: its JSON, its request as curl, Python or TypeScript, its address and its capsule.
import { caller, DEMO, requestBlob, USERS } from "./api.js";
import { showDialog } from "./dialog.js";
import { el, showToast } from "./dom.js";
import { t } from "./i18n.js";

/** The buttons that copy or download. */
export function exportButtons({ kind, body, answer, stored, link }, id) {
  const button = (word, work) => el("button", { type: "button", class: "quiet", text: t(word), on: { click: work } });
  const sent = { kind, body, id, now: stored?.capsule.now };
  return el(
    "div",
    { class: "row export", role: "group", "aria-label": t("export") },
    button("copy.link", () => copy(location.origin + location.pathname + link)),
    button("copy.curl", () => copy(curl(sent))),
    button("copy.python", () => copy(python(sent))),
    button("copy.typescript", () => copy(typescript(sent))),
    button("copy.json", () => copy(answer.text)),
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

/** The headers that give the same build: who asks, and the clock, which callers with a key cannot set. */
function sentHeaders(now) {
  return {
    "Content-Type": "application/json",
    ...(DEMO ? { "X-Contexture-User": encodeURIComponent(caller.user) } : {}),
    ...(DEMO && USERS[caller.user]?.length ? { "X-Contexture-Groups": USERS[caller.user].map(encodeURIComponent).join(",") } : {}),
    ...(now && !caller.key ? { "X-Contexture-Now": now } : {}),
  };
}

export function curl({ kind, body, id, now }) {
  const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
  return [
    `# gives the build ${id}\ncurl -s ${quoted(location.origin + kind.path)}`,
    ...Object.entries(sentHeaders(now)).map(([name, value]) => `  -H ${quoted(`${name}: ${value}`)}`),
    ...(caller.key ? ['  -H "Authorization: Bearer $CONTEXTURE_API_KEY"'] : []),
    `  -d ${quoted(JSON.stringify(body))}`,
  ].join(" \\\n");
}

export function python({ kind, body, id, now }) {
  const name = kind.idPath.map((key) => `[${JSON.stringify(key)}]`).join("");
  const key = caller.key ? '        "Authorization": "Bearer " + os.environ["CONTEXTURE_API_KEY"],\n' : "";
  const headers = Object.entries(sentHeaders(now)).map(([header, value]) => `        ${literal(header)}: ${literal(value)},\n`);
  return [
    "import json",
    ...(caller.key ? ["import os"] : []),
    "import urllib.request",
    "",
    "request = urllib.request.Request(",
    `    ${literal(location.origin + kind.path)},`,
    `    data=json.dumps(${literal(body, 4)}).encode(),`,
    `    headers={\n${headers.join("")}${key}    },`,
    ")",
    "with urllib.request.urlopen(request) as response:",
    "    built = json.load(response)",
    "",
    `print(built${name})  # ${id}`,
    "",
  ].join("\n");
}

export function typescript({ kind, body, id, now }) {
  const indented = (value) => JSON.stringify(value, null, 2).replaceAll("\n", "\n  ");
  const key = caller.key ? "\n    Authorization: `Bearer ${process.env.CONTEXTURE_API_KEY}`," : "";
  const headers = Object.entries(sentHeaders(now)).map(([name, value]) => `\n    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  return [
    `const response = await fetch(${JSON.stringify(location.origin + kind.path)}, {`,
    '  method: "POST",',
    `  headers: {${headers.join("")}${key}\n  },`,
    `  body: JSON.stringify(${indented(body)}),`,
    "});",
    "if (!response.ok) throw new Error(await response.text());",
    "const built = await response.json();",
    `console.log(built.${kind.idPath.join(".")}); // ${id}`,
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
