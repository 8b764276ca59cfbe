// Starts the page: the four tabs, the tools in the header, and what is heard everywhere.
import { ask, asker, DEMO, USERS } from "./api.js";
import { el, fill } from "./dom.js";
import { firstLanguage, LANGUAGES, language, onLanguage, speak, t } from "./i18n.js";
import { changeKey } from "./key.js";
import { loader } from "./load/dialog.js";
import { panel } from "./panel.js";
import { tabs } from "./tabs.js";
import { command } from "./tabs/command.js";
import { research } from "./tabs/research.js";
import { turn } from "./tabs/turn.js";
import { workspace } from "./tabs/workspace.js";
import { firstTheme, paint, THEMES } from "./theme.js";

const KINDS = [turn, command, research, workspace];

paint(firstTheme());
document.documentElement.lang = firstLanguage();

const pill = el("button", { type: "button", class: "pill", on: { click: watch } }, "…");
const panels = Object.fromEntries(KINDS.map((kind) => [kind.name, panel(kind, { built: watch })]));
let shown = turn.name;
document.getElementById("panels").append(...Object.values(panels).map((each) => each.node));

const load = loader(() => panels[shown].build());
const show = tabs(document.getElementById("tabs"), KINDS.map((kind) => kind.name), (name) => {
  shown = name;
  for (const [each, found] of Object.entries(panels)) found.node.hidden = each !== name;
  load.expect(KINDS.find((kind) => kind.name === name).loads);
  panels[name].open();
});

fill(
  document.getElementById("tools"),
  pill,
  el("button", { type: "button", class: "quiet", word: "load.open", on: { click: () => load.open([]) } }),
  DEMO ? chooser("user", Object.keys(USERS), asker.user, (name) => name, asAnother) : keyButton(),
  chooser("language", Object.keys(LANGUAGES), language(), (name) => LANGUAGES[name], speak),
  chooser("theme", THEMES, document.documentElement.dataset.theme, (name) => t(`theme.${name}`), paint),
);

onLanguage(() => Object.values(panels).forEach((each) => each.redraw()));
onLanguage(watch);
speak(language());
show(KINDS.some((kind) => `#${kind.name}` === location.hash) ? location.hash.slice(1) : turn.name);

/** A labelled choice in the header. */
function chooser(name, values, chosen, called, changed) {
  const options = values.map((value) => el("option", { value, text: called(value), selected: value === chosen }));
  const select = el("select", { id: `choose-${name}`, on: { change: () => changed(select.value) } }, options);
  if (name === "theme") {
    onLanguage(() => options.forEach((option) => (option.textContent = t(`theme.${option.value}`))));
  }
  return el("label", { class: "choice" }, el("span", { word: `choose.${name}` }), select);
}

function keyButton() {
  const again = () => panels[shown].build();
  return el("button", { type: "button", class: "quiet", word: "key.change", on: { click: () => changeKey(again) } });
}

function asAnother(user) {
  asker.user = user;
  for (const [name, each] of Object.entries(panels)) each.forget(name === shown);
}

/** Say in the header how the service is. */
async function watch() {
  try {
    const { json } = await ask("GET", "/health");
    const ill = Object.entries(json.components).filter(([, each]) => each.state !== "normal");
    pill.dataset.state = json.status;
    pill.textContent = ill.length
      ? ill.map(([name, each]) => `${t(`component.${name}`)}: ${t(`health.${each.state}`)}`).join(", ")
      : t("health.all");
  } catch {
    pill.dataset.state = "down";
    pill.textContent = t("health.gone");
  }
}
