// Prompts as parts, one per section; shared by the four kinds.

/** The text of a message's content. */
export function contentText(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? `[${part.type}]`).join("\n");
}

/** Split a text before every line that `mark` matches; the first group of `mark` is the number of the block. */
export function splitBlocks(text, mark) {
  const found = [];
  for (const line of text.split("\n")) {
    const opened = mark.exec(line);
    if (opened || found.length === 0) found.push({ number: opened ? Number(opened[1]) : null, lines: [] });
    found.at(-1).lines.push(line);
  }
  return found.map(({ number, lines }) => ({ number, text: lines.join("\n") }));
}

/** One part; `pieces` are its text, split into citable pieces, and `at` is the position of its message. */
export function makePart(section, role, pieces, at) {
  const whole = typeof pieces === "string" ? [{ number: null, text: pieces }] : pieces;
  return { section, role, pieces: whole, at };
}

/** Tokens that a section uses according to the ledger. */
export function sectionTokens(ledger, section) {
  const shown = ledger.filter((entry) => entry.section === section && entry.state !== "dropped");
  return shown.reduce((sum, entry) => sum + entry.tokens, 0);
}
