// Loading of files by drag and drop or by a file dialog, with progress.
import { showDialog } from "../dialog.js";
import { el, fill, number, showToast } from "../dom.js";
import { t } from "../i18n.js";
import { send } from "./send.js";

export const KINDS = ["memories", "articles", "documents", "blocks"];

/** Accepts files dropped anywhere; `done` is called when the dialog is closed after something was loaded. */
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
    shown = shown ?? openDialog(expected, () => {
      const loaded = shown.loaded();
      shown = null;
      if (loaded) done();
    });
    if (files.length) shown.loadFiles(files);
  }

  return { open, setKind: (kind) => (expected = kind) };
}

function openDialog(expected, closed) {
  let loaded = false;
  const kind = el("select", { id: "load-kind" }, KINDS.map((name) => el("option", { value: name, word: `load.${name}`, selected: name === expected })));
  const hint = el("p", { id: "load-hint", class: "hint", text: t(`load.${expected}.hint`) });
  kind.addEventListener("change", () => (hint.textContent = t(`load.${kind.value}.hint`)));
  const list = el("ul", { class: "loads", "aria-live": "polite" });
  const chooser = el("input", { id: "load-files", type: "file", multiple: true, "aria-describedby": "load-hint", on: { change: () => loadFiles([...chooser.files]) } });
  const content = el(
    "div",
    { class: "stack" },
    el("div", { class: "field" }, el("label", { for: "load-kind", word: "load.kind" }), kind),
    el("label", { class: "dropzone", for: "load-files" }, el("strong", { word: "load.drop" }), chooser),
    hint,
    list,
  );
  showDialog("load.title", content, { closed });

  async function loadFiles(files) {
    const chosen = kind.value;
    const lines = files.map((file) => ({ file, line: row(file) }));
    list.append(...lines.map(({ line }) => line.node));
    for (const { file, line } of lines) {
      try {
        line.succeeded(await send(chosen, file, line.progress));
        loaded = true;
      } catch (failure) {
        line.failed(failure.message);
      }
    }
    showToast(t("load.done"));
  }

  return { loadFiles, loaded: () => loaded };
}

/** One file: its name, progress and result. */
function row(file) {
  const bar = el("progress", { max: 1, value: 0, "aria-label": file.name });
  const status = el("span", { class: "hint" });
  const node = el("li", {}, el("span", { class: "file", text: file.name }), bar, status);
  return {
    node,
    progress: (share) => (share === null ? bar.removeAttribute("value") : (bar.value = share)),
    succeeded: (report) => {
      bar.value = 1;
      node.dataset.state = report.failed.length ? "some" : "done";
      const failed = report.failed.map((each) => el("span", { class: "bad", text: each }));
      fill(status, t("load.report", { added: number(report.added), unchanged: number(report.unchanged) }), ...failed);
    },
    failed: (message) => {
      bar.value = 0;
      node.dataset.state = "failed";
      fill(status, el("span", { class: "bad", text: message }));
    },
  };
}
