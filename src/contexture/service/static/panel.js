// One kind of context: the request on one side and the result on the other; every change builds again.
import { ApiError, DEMO, requestJson } from "./api.js";
import { el, fill, number } from "./dom.js";
import { form } from "./form.js";
import { t } from "./i18n.js";
import { askForKey } from "./key.js";
import { outage } from "./outage.js";
import { results } from "./results.js";

const DELAY = 140; // milliseconds between the last change and the build

/** The panel of a kind; `built` is called after every answer. */
export function panel(kind, { built }) {
  let requestCount = 0;
  let timer = 0;
  let running = null;
  let last = null;
  let pinned = null; // section shares that stay fixed while only the budget grows

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

  async function build() {
    clearTimeout(timer);
    running?.abort();
    running = new AbortController();
    const requestNumber = ++requestCount;
    node.setAttribute("aria-busy", "true");
    if (!last) fill(output, skeleton());
    const outcome = await attempt(running.signal);
    if (requestNumber !== requestCount) return; // a later request has been sent; discard this answer
    node.setAttribute("aria-busy", "false");
    last = outcome;
    redraw();
    if (!outcome.failure) outageSwitch?.refresh();
    built();
  }

  async function attempt(signal) {
    const values = requestForm.values();
    const body = kind.request(values, requestForm.budget(), pinned);
    try {
      const answer = await requestJson("POST", kind.path, body, signal);
      const extra = kind.extraRequest?.(values);
      const executed = extra ? (await requestJson("POST", extra.path, extra.body, signal)).json : null;
      const stored = await loadBuild(kind.read(answer.json).id, signal);
      return { kind, body, answer, executed, stored };
    } catch (failure) {
      return { failure };
    }
  }

  function redraw() {
    if (!last) return;
    if (last.failure) fill(output, errorCard(last.failure));
    else fill(output, results(last, { budget: requestForm.budget, buildWithBudget }));
  }

  function errorCard(failure) {
    if (failure instanceof ApiError && failure.status === 401) askForKey(build);
    const known = failure instanceof ApiError;
    return el(
      "div",
      { class: "card failure", role: "alert" },
      el("h3", { text: known ? t(`error.${failure.code}`) : t("error.unreachable") }),
      el("p", { text: known ? failure.message : t("error.unreachable.hint") }),
      failure.code === "NO_DATA" && el("p", { class: "hint", text: t("error.NO_DATA.hint") }),
      known && failure.correlation && el("p", { class: "hint", text: failure.correlation }),
      el("button", { type: "button", class: "quiet", word: "retry", on: { click: build } }),
    );
  }

  return {
    node,
    build,
    redraw,
    open: () => last || build(),
    reset: (now) => {
      last = null;
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
