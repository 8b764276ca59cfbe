// Two builds side by side: what differs in the request, and which candidates came in, went out or changed.
import { requestJson } from "./api.js";
import { showDialog } from "./dialog.js";
import { el, fill, number } from "./dom.js";
import { t } from "./i18n.js";
import { candidateTitles } from "./titles.js";

const DERIVED = /^request\.(documents|facts|shorter|plan|surroundings|timestamp|lines|tenant_id)\b/;
const MAX_VALUE = 160; // characters of a value

/** Show the differences between the builds of two entries of the history, the earlier one first. */
export async function showComparison(one, other) {
  const [before, after] = one.now <= other.now ? [one, other] : [other, one];
  const content = el("div", { class: "stack", "aria-busy": "true" }, el("p", { class: "hint", text: t("why.asking") }));
  showDialog("compare.title", content, { wide: true });
  try {
    const [first, second] = await Promise.all([loadSide(before), loadSide(after)]);
    fill(content, facts(first, second), ...candidateLists(first, second));
  } catch (failure) {
    fill(content, el("p", { role: "alert", text: failure.message }));
  }
  content.setAttribute("aria-busy", "false");
}

async function loadSide(entry) {
  const { json } = await requestJson("GET", `/v1/builds/${entry.id}`, undefined, undefined, { user: entry.user });
  return { entry, ...json, titles: candidateTitles(json) };
}

function facts(first, second) {
  const rows = [
    ["compare.build", first.entry.id, second.entry.id],
    ["choose.user", first.capsule.user, second.capsule.user],
    ["compare.groups", first.capsule.groups.join(", "), second.capsule.groups.join(", ")],
    ["stat.tokens", number(first.entry.tokens), number(second.entry.tokens)],
    ["budget", number(first.entry.limit), number(second.entry.limit)],
    ["compare.model", first.capsule.settings.model, second.capsule.settings.model],
    ["compare.prompt", first.capsule.digest.slice(0, 12), second.capsule.digest.slice(0, 12)],
  ].map(([word, ...values]) => factRow(t(word), values));
  const settings = differences(flatten(first.capsule), flatten(second.capsule)).map(([name, ...values]) =>
    factRow(el("code", { text: name }), values),
  );
  return el(
    "div",
    { class: "scroll wide", tabindex: "0", role: "group", "aria-label": t("compare.facts") },
    el(
      "table",
      { class: "ledger compared" },
      el("thead", {}, el("tr", {}, [t("compare.setting"), t("compare.before"), t("compare.after")].map((text) => el("th", { scope: "col", text })))),
      el("tbody", {}, rows, settings),
    ),
  );
}

function factRow(name, values) {
  const changed = values[0] !== values[1];
  return el(
    "tr",
    { data: { changed: String(changed) } },
    el("th", { scope: "row" }, name),
    values.map((value) => el("td", {}, changed ? el("strong", { text: value }) : value)),
  );
}

/** The names and both values of what differs. */
function differences(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const shorten = (value = "–") => (value.length > MAX_VALUE ? `${value.slice(0, MAX_VALUE)}…` : value);
  return names
    .filter((name) => before[name] !== after[name] && !DERIVED.test(name))
    .map((name) => [name, shorten(before[name]), shorten(after[name])]);
}

/** The request and the settings of a capsule as dotted names with their values as text. */
function flatten({ request, settings }) {
  const found = {};
  const add = (name, value) => {
    if (value !== null && typeof value === "object" && !Array.isArray(value)) {
      for (const [key, each] of Object.entries(value)) add(`${name}.${key}`, each);
    } else found[name] = typeof value === "string" ? value : JSON.stringify(value);
  };
  add("request", request);
  add("settings", settings);
  return found;
}

function candidateLists(first, second) {
  const before = new Map(first.ledger.map((entry) => [entry.id, entry]));
  const after = new Map(second.ledger.map((entry) => [entry.id, entry]));
  const titles = new Map([...first.titles, ...second.titles]);
  const isIn = (entry) => entry !== undefined && entry.state !== "dropped";
  const came = second.ledger.filter((entry) => isIn(entry) && !isIn(before.get(entry.id)));
  const left = first.ledger.filter((entry) => isIn(entry) && !isIn(after.get(entry.id)));
  const changed = second.ledger.filter((entry) => {
    const earlier = before.get(entry.id);
    return isIn(entry) && isIn(earlier) && (entry.form !== earlier.form || entry.tokens !== earlier.tokens);
  });
  const same = second.ledger.filter((entry) => isIn(entry) && isIn(before.get(entry.id))).length - changed.length;
  const describe = (map, id) => {
    const entry = map.get(id);
    if (!entry) return t("compare.absent");
    return [t(`state.${entry.state}`), t(`reason.${entry.reason}`), entry.note].filter(Boolean).join(", ");
  };
  const line = (entry, tokens) =>
    el(
      "li",
      {},
      el("strong", { text: titles.get(entry.id) || entry.id }),
      el("span", { class: "hint", text: tokens }),
      el("span", { class: "hint", text: t("compare.why", { before: describe(before, entry.id), after: describe(after, entry.id) }) }),
    );
  const sized = (entry) => line(entry, t("tokens", { n: number(entry.tokens) }));
  const resized = (entry) =>
    line(entry, t("compare.tokens", { before: number(before.get(entry.id).tokens), after: number(entry.tokens) }));
  return [
    list("compare.came", came.map(sized), "kept"),
    list("compare.left", left.map(sized), "dropped"),
    list("compare.changed", changed.map(resized), "shortened"),
    el("p", { class: "hint", text: t("compare.same", { n: number(same) }) }),
  ].filter(Boolean);
}

function list(word, items, state) {
  if (items.length === 0) return null;
  return el(
    "section",
    { class: "compared-list", data: { state, list: word.split(".")[1] } },
    el("h3", { text: `${t(word)}: ${number(items.length)}` }),
    el("ul", {}, items),
  );
}
