// Loading by drag and drop or by choosing files, each with its progress.
import { dialog } from "../dialog.js";
import { el, fill, number, say } from "../dom.js";
import { t } from "../i18n.js";
import { send } from "./send.js";

export const KINDS = ["memories", "articles", "documents", "blocks"];

/** Hears files dropped anywhere; `done` is called when the dialog is closed after something was loaded. */
export function loader(done) {
  let expected = KINDS[0];
  let shown = null;

  document.addEventListener("dragover", (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    document.body.classList.add("dropping");
  });
  document.addEventListener("dragleave", (event) => event.relatedTarget ?? document.body.classList.remove("dropping"));
  document.addEventListener("drop", (event) => {
    if (!event.dataTransfer?.files.length) return;
    event.preventDefault();
    document.body.classList.remove("dropping");
    open([...event.dataTransfer.files]);
  });

  function open(files) {
    shown = shown ?? opened(expected, () => {
      const loaded = shown.loaded();
      shown = null;
      if (loaded) done();
    });
    if (files.length) shown.take(files);
  }

  return { open, expect: (kind) => (expected = kind) };
}

function opened(expected, closed) {
  let loaded = false;
  const kind = el("select", { id: "load-kind" }, KINDS.map((name) => el("option", { value: name, word: `load.${name}`, selected: name === expected })));
  const hint = el("p", { id: "load-hint", class: "hint", text: t(`load.${expected}.hint`) });
  kind.addEventListener("change", () => (hint.textContent = t(`load.${kind.value}.hint`)));
  const list = el("ul", { class: "loads", "aria-live": "polite" });
  const chooser = el("input", { id: "load-files", type: "file", multiple: true, "aria-describedby": "load-hint", on: { change: () => take([...chooser.files]) } });
  const content = el(
    "div",
    { class: "stack" },
    el("div", { class: "field" }, el("label", { for: "load-kind", word: "load.kind" }), kind),
    el("label", { class: "dropzone", for: "load-files" }, el("strong", { word: "load.drop" }), chooser),
    hint,
    list,
  );
  dialog("load.title", content, { closed });

  async function take(files) {
    const chosen = kind.value;
    const lines = files.map((file) => ({ file, line: row(file) }));
    list.append(...lines.map(({ line }) => line.node));
    for (const { file, line } of lines) {
      try {
        line.told(await send(chosen, file, line.progress));
        loaded = true;
      } catch (failure) {
        line.failed(failure.message);
      }
    }
    say(t("load.done"));
  }

  return { take, loaded: () => loaded };
}

/** One file: its name, how far it is, and what became of it. */
function row(file) {
  const bar = el("progress", { max: 1, value: 0, "aria-label": file.name });
  const said = el("span", { class: "hint" });
  const node = el("li", {}, el("span", { class: "file", text: file.name }), bar, said);
  return {
    node,
    progress: (share) => (share === null ? bar.removeAttribute("value") : (bar.value = share)),
    told: (report) => {
      bar.value = 1;
      node.dataset.state = report.failed.length ? "some" : "done";
      const failed = report.failed.map((each) => el("span", { class: "bad", text: each }));
      fill(said, t("load.report", { added: number(report.added), unchanged: number(report.unchanged) }), ...failed);
    },
    failed: (message) => {
      bar.value = 0;
      node.dataset.state = "failed";
      fill(said, el("span", { class: "bad", text: message }));
    },
  };
}
