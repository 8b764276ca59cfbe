// One kind of context: the request on one side and the result on the other; every change builds again.
import { ApiError, caller, DEMO, requestJson } from "./api.js";
import { sharedPrefix } from "./caching.js";
import { el, fill, number } from "./dom.js";
import { form } from "./form.js";
import { t } from "./i18n.js";
import { askForKey } from "./key.js";
import { formatLink } from "./link.js";
import { outage } from "./outage.js";
import { results } from "./results.js";

const DELAY = 140; // milliseconds between the last change and the build

/** The panel of a kind; `built` is called after every answer, with an entry for the history if there is a result. */
export function panel(kind, { built }) {
  let requestCount = 0;
  let timer = 0;
  let running = null;
  let last = null; // the last good result
  let failure = null; // of the request after it
  let pinned = null; // section shares that stay fixed while only the budget grows
  let wanted = null; // the build of a permalink, until it is built

  const output = el("div", { class: "output", "aria-live": "off" });
  const requestForm = form(kind, { changed: buildSoon, submitted: buildNow });
  const outageSwitch = DEMO && kind.name === "turn" ? outage(build) : null;
  const node = el(
    "section",
    {
      id: `panel-${kind.name}`,
      class: "panel",
      role: "tabpanel",
      "aria-labelledby": `tab-${kind.name}`,
      hidden: true,
    },
    el("div", { class: "request" }, requestForm.node, outageSwitch?.node),
    output,
  );

  function buildSoon() {
    pinned = null;
    clearTimeout(timer);
    timer = setTimeout(build, DELAY);
  }

  function buildNow() {
    pinned = null;
    return build();
  }

  function buildWithBudget(tokens) {
    pinned = (last.stored && kind.pinned?.(last.stored)) ?? null;
    requestForm.setBudget(tokens);
    build();
  }

  /** Build what a permalink or an entry of the history names, with its clock. */
  function open(entry) {
    wanted = entry;
    requestForm.setValues(kind.values(entry.body));
    requestForm.setBudget(kind.limit(entry.body));
    return build();
  }

  async function build() {
    clearTimeout(timer);
    running?.abort();
    running = new AbortController();
    const requestNumber = ++requestCount;
    const [given, signal] = [wanted, running.signal];
    wanted = null;
    node.setAttribute("aria-busy", "true");
    if (!last && !failure) fill(output, skeleton());
    const outcome = await attempt(given, signal);
    if (requestNumber !== requestCount) return; // a later request has been sent; discard this answer
    node.setAttribute("aria-busy", "false");
    failure = outcome.failure ?? null;
    if (!failure) last = outcome;
    redraw();
    if (!failure) outageSwitch?.refresh();
    built(failure ? null : last.entry);
  }

  async function attempt(given, signal) {
    const values = requestForm.values();
    const body = given?.body ?? kind.request(values, requestForm.budget(), pinned);
    try {
      const answer = await requestJson("POST", kind.path, body, signal, { now: given?.now });
      const extra = kind.extraRequest?.(values);
      const executed = extra ? (await requestJson("POST", extra.path, extra.body, signal)).json : null;
      const stored = await loadBuild(kind.read(answer.json).id, signal);
      return complete({ kind, body, answer, executed, stored, given });
    } catch (failure) {
      return { failure };
    }
  }

  /** The build with its entry for the history, its permalink, and the prefix shared with the build before. */
  function complete(build) {
    const found = kind.read(build.answer.json, build.stored);
    const { body } = build;
    const entry = {
      kind: kind.name,
      id: found.id,
      title: kind.title(body),
      tokens: found.tokens,
      limit: found.limit ?? kind.limit(body),
      user: caller.user,
      now: build.stored?.capsule.now ?? new Date().toISOString(),
      body,
    };
    const isSame = last?.entry.id === entry.id;
    const before = isSame ? last.before : last?.entry.id;
    const prefix = isSame ? last.prefix : sharedPrefix(last?.stored?.capsule.messages, build.stored?.capsule.messages);
    return { ...build, entry, link: formatLink(entry), before, prefix };
  }

  function redraw() {
    const cards = last ? results(last, { budget: requestForm.budget, buildWithBudget }) : [];
    const changed = last?.given && last.given.id !== last.entry.id ? changedNotice(last.given) : null;
    const hint = failure && last ? el("p", { class: "hint stale", text: t("error.stale") }) : null;
    if (last || failure) fill(output, failure && errorCard(failure), hint, changed, cards);
    output.dataset.stale = String(Boolean(failure && last));
  }

  /** The store has changed since the build of a permalink, or its clock could not be set. */
  function changedNotice(given) {
    return el("div", { class: "notice warning", role: "status" }, el("p", { text: t("link.changed", { id: given.id }) }));
  }

  function errorCard(found) {
    if (found instanceof ApiError && found.status === 401) askForKey(build);
    const known = found instanceof ApiError;
    return el(
      "div",
      { class: "card failure", role: "alert" },
      el("h3", { text: known ? t(`error.${found.code}`) : t("error.unreachable") }),
      el("p", { text: known ? found.message : t("error.unreachable.hint") }),
      found.code === "NO_DATA" && el("p", { class: "hint", text: t("error.NO_DATA.hint") }),
      known && found.correlation && el("p", { class: "hint", text: found.correlation }),
      el("button", { type: "button", class: "quiet", word: "retry", on: { click: build } }),
    );
  }

  return {
    node,
    build,
    redraw,
    open,
    show: () => last || build(),
    entry: () => last?.entry ?? null,
    reset: (now) => {
      last = null;
      failure = null;
      if (now) build();
    },
  };
}

/** The stored build; null if the service did not store it. */
async function loadBuild(id, signal) {
  try {
    return (await requestJson("GET", `/v1/builds/${id}`, undefined, signal)).json;
  } catch (failure) {
    if (failure instanceof ApiError) return null;
    throw failure;
  }
}

function skeleton() {
  return el(
    "div",
    { class: "card skeleton", role: "status" },
    el("p", { class: "hint", text: t("building") }),
    ...[92, 74, 86, 60].map((width) => {
      const line = el("div", { class: "line", "aria-hidden": "true" });
      line.style.width = `${number(width)}%`;
      return line;
    }),
  );
}
