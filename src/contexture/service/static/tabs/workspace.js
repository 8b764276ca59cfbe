// A workspace context: what stands around a focus, what is like the query, what is linked, and what was just done.
import { part } from "../parts.js";

const QUERY = "User Query: ";

export const workspace = {
  name: "workspace",
  path: "/v1/context/workspace",
  loads: "blocks",
  method: "build_workspace",
  budget: { min: 150, max: 4000, step: 25, start: 800 },
  fields: [
    { name: "query", rows: 2 },
    { name: "pageId", type: "text", optional: true, hint: true },
    { name: "type", options: ["chat", "assist", "search", "automate"] },
  ],
  samples: [
    { name: "Overdue tasks", query: "What tasks are overdue?", pageId: "weekly", type: "chat" },
    { name: "Drossel", query: "What did we decide about Drossel?", pageId: "weekly", type: "assist" },
    { name: "Дежурство", query: "Что проверить дежурному перед штормом?", pageId: "", type: "chat" },
  ],

  /** The shares of a build: with a larger budget they would grow, and the advice of `explain` holds for these. */
  pinned: (kept) => kept.request.floors,

  request(values, budget, shares) {
    return {
      query: values.query,
      type: values.type,
      ...(values.pageId ? { focus: { pageId: values.pageId } } : {}),
      tokenBudget: { ...shares, total: budget },
    };
  },

  read(answer, kept) {
    const counted = answer.sections.reduce((sum, section) => sum + section.tokenCount, 0);
    const floors = kept?.request.floors ?? {};
    return {
      id: answer.buildId,
      tokens: answer.metadata.totalTokens,
      limit: kept?.request.total ?? null,
      parts: cut(answer),
      sections: [
        ...answer.sections.map(({ type, tokenCount }) => ({
          name: type,
          tokens: tokenCount,
          floor: floors[type],
          cap: kept?.request.caps[type],
        })),
        { name: "fixed", tokens: Math.max(0, answer.metadata.totalTokens - counted) },
      ],
      notes: [...answer.validation.errors, ...answer.validation.warnings].map((issue) => ({
        source: issue.code,
        reason: issue.message,
      })),
      cite: () => [],
    };
  },
};

/** The text cut at the headings of its sections; those in the data are escaped, so they do not look like these. */
function cut(answer) {
  const named = new Map(answer.sections.map((section) => [`### ${section.title}`, section.type]));
  const parts = [];
  for (const line of answer.serialized.split("\n")) {
    const section = named.get(line) ?? (line.startsWith(QUERY) || line === "---" ? "user" : null);
    if (parts.length === 0 || (section !== null && section !== parts.at(-1).section)) {
      parts.push({ section: section ?? "system", lines: [] });
    }
    parts.at(-1).lines.push(line);
  }
  return parts.map(({ section, lines }) => part(section, "user", lines.join("\n").trim())).filter(filled);
}

function filled(each) {
  return each.pieces.some((piece) => piece.text);
}
