// A workspace context: the focus and its surroundings, related and linked blocks, and recent activity.
import { makePart } from "../parts.js";

const QUERY = "User Query: ";

export const workspace = {
  name: "workspace",
  path: "/v1/context/workspace",
  loads: "blocks",
  idPath: ["buildId"],
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

  /** The section shares of a build: they would grow with the budget, but the advice of `explain` holds for these. */
  pinned: (stored) => stored.request.floors,

  request(values, budget, shares) {
    return {
      query: values.query,
      type: values.type,
      ...(values.pageId ? { focus: { pageId: values.pageId } } : {}),
      tokenBudget: { ...shares, total: budget },
    };
  },

  values: (body) => ({ query: body.query, pageId: body.focus?.pageId ?? "", type: body.type }),
  limit: (body) => body.tokenBudget.total,
  title: (body) => body.query,

  read(answer, stored) {
    const counted = answer.sections.reduce((sum, section) => sum + section.tokenCount, 0);
    const floors = stored?.request.floors ?? {};
    return {
      id: answer.buildId,
      tokens: answer.metadata.totalTokens,
      limit: stored?.request.total ?? null,
      parts: splitSections(answer),
      sections: [
        ...answer.sections.map(({ type, tokenCount }) => ({
          name: type,
          tokens: tokenCount,
          floor: floors[type],
          cap: stored?.request.caps[type],
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

/** Split the text at the headings of its sections; headings in the data are escaped and do not match. */
function splitSections(answer) {
  const named = new Map(answer.sections.map((section) => [`### ${section.title}`, section.type]));
  const parts = [];
  for (const line of answer.serialized.split("\n")) {
    const section = named.get(line) ?? (line.startsWith(QUERY) || line === "---" ? "user" : null);
    if (parts.length === 0 || (section !== null && section !== parts.at(-1).section)) {
      parts.push({ section: section ?? "system", lines: [] });
    }
    parts.at(-1).lines.push(line);
  }
  return parts.map(({ section, lines }) => makePart(section, "user", lines.join("\n").trim())).filter(isNotEmpty);
}

function isNotEmpty(each) {
  return each.pieces.some((piece) => piece.text);
}
