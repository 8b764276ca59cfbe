// Starts the page: the tabs, the history, the tools in the header, and global events.
import { caller, DEMO, requestJson, USERS } from "./api.js";
import { showComparison } from "./compare.js";
import { el, fill, showToast } from "./dom.js";
import { buildHistory } from "./history.js";
import { initialLanguage, LANGUAGES, language, onLanguage, setLanguage, t } from "./i18n.js";
import { askForKey } from "./key.js";
import { formatLink, parseLink } from "./link.js";
import { loader } from "./load/dialog.js";
import { panel } from "./panel.js";
import { tabs } from "./tabs.js";
import { ask } from "./tabs/ask.js";
import { command } from "./tabs/command.js";
import { research } from "./tabs/research.js";
import { turn } from "./tabs/turn.js";
import { workspace } from "./tabs/workspace.js";
import { initialTheme, setTheme, THEMES } from "./theme.js";

const KINDS = [ask, turn, command, research, workspace];

setTheme(initialTheme());
document.documentElement.lang = initialLanguage();

const healthButton = el("button", { type: "button", class: "pill", on: { click: updateHealth } }, "…");
const panels = Object.fromEntries(KINDS.map((kind) => [kind.name, panel(kind, { built: (entry) => [updateHealth(), onBuilt(entry)] })]));
const past = buildHistory({ open: openEntry, compare: compareEntry });
let shown = ask.name;
let linked = false; // a permalink is opened: the tab does not build its sample
document.getElementById("panels").append(...Object.values(panels).map((each) => each.node));

const load = loader(() => panels[shown].build());
const show = tabs(document.getElementById("tabs"), KINDS.map((kind) => kind.name), (name) => {
  shown = name;
  for (const [each, found] of Object.entries(panels)) found.node.hidden = each !== name;
  load.setKind(KINDS.find((kind) => kind.name === name).loads);
  panels[name].node.querySelector(".request").append(past.node);
  if (linked) return;
  panels[name].show();
  onBuilt(panels[name].entry());
});

fill(
  document.getElementById("tools"),
  healthButton,
  el("button", { type: "button", class: "quiet", word: "load.open", on: { click: () => load.open([]) } }),
  DEMO ? chooser("user", Object.keys(USERS), caller.user, (name) => name, switchUser) : keyButton(),
  chooser("language", Object.keys(LANGUAGES), language(), (name) => LANGUAGES[name], setLanguage),
  chooser("theme", THEMES, document.documentElement.dataset.theme, (name) => t(`theme.${name}`), setTheme),
);

onLanguage(() => Object.values(panels).forEach((each) => each.redraw()));
onLanguage(updateHealth);
setLanguage(language());
if (!openAddress()) show(ask.name);
window.addEventListener("hashchange", openAddress);

/** A labelled select element in the header. */
function chooser(name, values, chosen, label, changed) {
  const options = values.map((value) => el("option", { value, text: label(value), selected: value === chosen }));
  const select = el("select", { id: `choose-${name}`, on: { change: () => changed(select.value) } }, options);
  if (name === "theme") {
    onLanguage(() => options.forEach((option) => (option.textContent = t(`theme.${option.value}`))));
  }
  return el("label", { class: "choice" }, el("span", { word: `choose.${name}` }), select);
}

function keyButton() {
  const rebuild = () => panels[shown].build();
  return el("button", { type: "button", class: "quiet", word: "key.change", on: { click: () => askForKey(rebuild) } });
}

/** Show the tab that the address names, with its build if it is a permalink; returns whether it names one. */
function openAddress() {
  const { kind, build } = parseLink(location.hash);
  const known = KINDS.some((each) => each.name === kind);
  if (known && build) openEntry(build);
  else if (known) show(kind);
  return known;
}

function openEntry(entry) {
  if (DEMO && entry.user && entry.user !== caller.user) {
    document.getElementById("choose-user").value = entry.user;
    caller.user = entry.user;
    for (const each of Object.values(panels)) each.reset(false);
  }
  linked = true;
  show(entry.kind);
  linked = false;
  panels[entry.kind].open(entry);
}

/** Show a new build in the history and in the address. */
function onBuilt(entry) {
  if (!entry || entry.kind !== shown) return;
  past.add(entry);
  history.replaceState(null, "", formatLink(entry));
}

function compareEntry(entry) {
  const current = past.current();
  if (current) showComparison(entry, current);
  else showToast(t("compare.none"));
}

function switchUser(user) {
  caller.user = user;
  for (const [name, each] of Object.entries(panels)) each.reset(name === shown);
}

/** Show the health of the service in the header. */
async function updateHealth() {
  try {
    const { json } = await requestJson("GET", "/health");
    const notNormal = Object.entries(json.components).filter(([, each]) => each.state !== "normal");
    healthButton.dataset.state = json.status;
    healthButton.textContent = notNormal.length
      ? notNormal.map(([name, each]) => `${t(`component.${name}`)}: ${t(`health.${each.state}`)}`).join(", ")
      : t("health.all");
  } catch {
    healthButton.dataset.state = "down";
    healthButton.textContent = t("health.unreachable");
  }
}
