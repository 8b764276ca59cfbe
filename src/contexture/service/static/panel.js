// One kind of context: the request on one side, what came of it on the other, built again as soon as either changes.
import { ask, DEMO, Refusal } from "./api.js";
import { el, fill, number } from "./dom.js";
import { form } from "./form.js";
import { t } from "./i18n.js";
import { changeKey } from "./key.js";
import { outage } from "./outage.js";
import { results } from "./results.js";

const WAIT = 140; // milliseconds in which a slider may still move

/** The panel of a kind; `built` is called after every answer. */
export function panel(kind, { built }) {
  let asked = 0;
  let timer = 0;
  let running = null;
  let last = null;
  let pinned = null; // what stays as it was while a candidate is given what it lacked

  const output = el("div", { class: "output", "aria-live": "off" });
  const asking = form(kind, { changed: soon, submitted: afresh });
  const breaker = DEMO && kind.name === "turn" ? outage(build) : null;
  const node = el(
    "section",
    {
      id: `panel-${kind.name}`,
      class: "panel",
      role: "tabpanel",
      "aria-labelledby": `tab-${kind.name}`,
      hidden: true,
    },
    el("div", { class: "request" }, asking.node, breaker?.node),
    output,
  );

  function soon() {
    pinned = null;
    clearTimeout(timer);
    timer = setTimeout(build, WAIT);
  }

  function afresh() {
    pinned = null;
    return build();
  }

  function more(tokens) {
    pinned = (last.kept && kind.pinned?.(last.kept)) ?? null;
    asking.spend(tokens);
    build();
  }

  async function build() {
    clearTimeout(timer);
    running?.abort();
    running = new AbortController();
    const turn = ++asked;
    node.setAttribute("aria-busy", "true");
    if (!last) fill(output, waiting());
    const outcome = await attempt(running.signal);
    if (turn !== asked) return; // a later request has been made, so nobody wants this answer
    node.setAttribute("aria-busy", "false");
    last = outcome;
    redraw();
    if (!outcome.failure) breaker?.look();
    built();
  }

  async function attempt(signal) {
    const values = asking.values();
    const body = kind.request(values, asking.budget(), pinned);
    try {
      const answer = await ask("POST", kind.path, body, signal);
      const extra = kind.also?.(values);
      const executed = extra ? (await ask("POST", extra.path, extra.body, signal)).json : null;
      const kept = await keptOf(kind.read(answer.json).id, signal);
      return { kind, body, answer, executed, kept };
    } catch (failure) {
      return { failure };
    }
  }

  function redraw() {
    if (!last) return;
    if (last.failure) fill(output, failed(last.failure));
    else fill(output, results(last, { budget: asking.budget, more }));
  }

  function failed(failure) {
    if (failure instanceof Refusal && failure.status === 401) changeKey(build);
    const known = failure instanceof Refusal;
    return el(
      "div",
      { class: "card failure", role: "alert" },
      el("h3", { text: known ? t(`error.${failure.code}`) : t("error.gone") }),
      el("p", { text: known ? failure.message : t("error.gone.why") }),
      failure.code === "NO_DATA" && el("p", { class: "hint", text: t("error.NO_DATA.hint") }),
      known && failure.correlation && el("p", { class: "hint", text: failure.correlation }),
      el("button", { type: "button", class: "quiet", word: "again", on: { click: build } }),
    );
  }

  return {
    node,
    build,
    redraw,
    open: () => last || build(),
    forget: (now) => {
      last = null;
      if (now) build();
    },
  };
}

/** What the service has kept of a build; a build that it could not keep is shown without. */
async function keptOf(id, signal) {
  try {
    return (await ask("GET", `/v1/builds/${id}`, undefined, signal)).json;
  } catch (failure) {
    if (failure instanceof Refusal) return null;
    throw failure;
  }
}

function waiting() {
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
