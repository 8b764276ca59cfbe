// Prompts as parts, each of one section: what the four kinds have in common.

/** What can be read of a message's content. */
export function words(content) {
  if (typeof content === "string") return content;
  return (content ?? []).map((part) => part.text ?? `[${part.type}]`).join("\n");
}

/** A text cut before every line that `mark` matches; its first group is the number of the block. */
export function blocks(text, mark) {
  const found = [];
  for (const line of text.split("\n")) {
    const opened = mark.exec(line);
    if (opened || found.length === 0) found.push({ number: opened ? Number(opened[1]) : null, lines: [] });
    found.at(-1).lines.push(line);
  }
  return found.map(({ number, lines }) => ({ number, text: lines.join("\n") }));
}

/** One part: `pieces` are its text, cut where it can be cited. */
export function part(section, role, pieces) {
  const whole = typeof pieces === "string" ? [{ number: null, text: pieces }] : pieces;
  return { section, role, pieces: whole };
}

/** Tokens of what a section shows, by its ledger. */
export function spent(ledger, section) {
  const shown = ledger.filter((entry) => entry.section === section && entry.state !== "dropped");
  return shown.reduce((sum, entry) => sum + entry.tokens, 0);
}
