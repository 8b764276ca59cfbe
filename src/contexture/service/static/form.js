// The request form of one kind: samples, fields and token budget.
import { el, number } from "./dom.js";
import { onLanguage, t } from "./i18n.js";

/** The form; `changed` is called on every change, `submitted` to build at once. */
export function form(kind, { changed, submitted }) {
  const inputs = Object.fromEntries(kind.fields.map((field) => [field.name, input(kind, field, changed)]));
  const budget = slider(kind, changed);
  const chips = kind.samples.map((sample, at) =>
    el("button", {
      type: "button",
      class: "chip",
      text: sample.name,
      "aria-pressed": String(at === 0),
      on: { click: () => useSample(at) },
    }),
  );
  const node = el(
    "form",
    { class: "card stack", on: { submit: onSubmit, keydown: onKeydown } },
    el("div", { class: "chips", role: "group", label: "samples" }, chips),
    ...kind.fields.map((field) => labelledField(kind, field, inputs[field.name])),
    budget.node,
    el("button", { type: "submit", class: "primary", word: "build" }),
  );
  setFields(kind.samples[0]);

  function useSample(at) {
    chips.forEach((chip, place) => chip.setAttribute("aria-pressed", String(place === at)));
    setFields(kind.samples[at]);
    submitted();
  }

  function setValues(values) {
    chips.forEach((chip) => chip.setAttribute("aria-pressed", "false"));
    setFields(values);
  }

  function setFields(sample) {
    for (const field of kind.fields) inputs[field.name].value = sample[field.name] ?? field.options?.[0] ?? "";
  }

  function onSubmit(event) {
    event.preventDefault();
    submitted();
  }

  function onKeydown(event) {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) onSubmit(event);
  }

  return {
    node,
    values: () => Object.fromEntries(Object.entries(inputs).map(([name, found]) => [name, found.value.trim()])),
    budget: () => budget.value(),
    setBudget: (tokens) => budget.set(tokens),
    setValues,
  };
}

function input(kind, field, changed) {
  const id = `${kind.name}-${field.name}`;
  const described = field.hint ? { "aria-describedby": `${id}-hint` } : {};
  if (field.options) {
    const options = field.options.map((value) => el("option", { value, word: `option.${value}` }));
    return el("select", { id, on: { change: changed } }, options);
  }
  if (field.rows) return el("textarea", { id, rows: field.rows, spellcheck: "false", ...described, on: { input: changed } });
  const limits = field.type === "number" ? { min: field.min, max: field.max } : {};
  return el("input", { id, type: field.type, spellcheck: "false", ...limits, ...described, on: { input: changed } });
}

function labelledField(kind, field, found) {
  const id = `${kind.name}-${field.name}`;
  return el(
    "div",
    { class: "field" },
    el("label", { for: id, word: `field.${field.name}` }),
    found,
    field.hint && el("p", { id: `${id}-hint`, class: "hint", word: `hint.${field.name}` }),
  );
}

function slider(kind, changed) {
  const { min, max, step, start, hint } = kind.budget;
  const id = `${kind.name}-budget`;
  const range = el("input", { id, type: "range", min, max, step, value: start, on: { input: onInput } });
  const output = el("output", { for: id, class: "tokens" });

  function onInput() {
    updateLabel();
    changed();
  }

  function updateLabel() {
    output.textContent = t("tokens", { n: number(Number(range.value)) });
    range.setAttribute("aria-valuetext", output.textContent);
  }

  updateLabel();
  onLanguage(updateLabel);
  return {
    node: el(
      "div",
      { class: "field" },
      el("div", { class: "between" }, el("label", { for: id, word: "budget" }), output),
      range,
      hint && el("p", { class: "hint", word: "hint.budget" }),
    ),
    value: () => Number(range.value),
    set: (tokens) => {
      range.step = 1; // allows the exact number
      range.max = Math.max(max, tokens);
      range.value = tokens;
      updateLabel();
    },
  };
}
