// A question over everything that the user may read: memories, records, pages, news and the workspace.
import { t } from "../i18n.js";
import { contentText, makePart, splitBlocks } from "../parts.js";

const SOURCE = /^\[(\d+)\] \(/;
const KINDS = ["memories", "records", "pages", "news", "workspace"];
const HEADINGS = /^## (Memories|Records|Documents|News|Workspace)$/;
const SECTION_OF = { Memories: "memories", Records: "records", Documents: "pages", News: "news", Workspace: "workspace" };

export const ask = {
  name: "ask",
  path: "/v1/context/ask",
  loads: "documents",
  idPath: ["build_id"],
  budget: { min: 200, max: 4000, step: 50, start: 1200 },
  fields: [
    { name: "query", rows: 3 },
    { name: "history", rows: 2, optional: true, hint: true },
    { name: "kinds", options: ["all", ...KINDS] },
  ],
  samples: [
    {
      name: "Two kinds",
      query: "What did the tidal pilot cost, and how many dockers are on strike?",
      history: "",
      kinds: "all",
    },
    {
      name: "Follow-up",
      query: "and for planning?",
      history: "user: What did the turbines of the tidal pilot cost?\nassistant: 1.7 million crowns [1].",
      kinds: "all",
    },
    { name: "Датчик", query: "Как перезапустить датчик после отключения питания?", history: "", kinds: "all" },
  ],

  request(values, budget) {
    const history = parseMessages(values.history);
    return {
      query: values.query,
      ...(values.kinds && values.kinds !== "all" ? { kinds: [values.kinds] } : {}),
      ...(history.length ? { history } : {}),
      max_tokens: budget,
    };
  },

  values: (body) => ({
    query: body.query,
    history: formatMessages(body.history),
    kinds: body.kinds?.[0] ?? "all",
  }),
  limit: (body) => body.max_tokens,
  title: (body) => body.query,

  read(answer) {
    const { system, history, user, framing, ...kinds } = answer.token_counts;
    return {
      id: answer.build_id,
      tokens: answer.tokens,
      limit: answer.max_tokens,
      parts: answer.messages.flatMap((message, at) => messageParts(message, at, answer.messages.length - 1)),
      sections: [
        { name: "system", tokens: system },
        { name: "history", tokens: history },
        ...KINDS.map((name) => ({ name, tokens: kinds[name] ?? 0 })),
        { name: "user", tokens: user },
        { name: "fixed", tokens: framing ?? 0 },
      ],
      notes: notes(answer),
      cite: (number) => answer.sources[number - 1]?.citations,
      source: (number) => pictured(answer.sources[number - 1]),
    };
  },
};

/** What the page says about a question: how a follow-up was read, and the kinds that contribute nothing. */
function notes(answer) {
  const read = answer.standalone_query === answer.query
    ? []
    : [{ source: t("standalone"), reason: answer.standalone_query }];
  const missing = answer.missing.map((each) => ({
    source: t(`section.${each.kind}`),
    reason: t(`missing.${each.reason}`),
    command: each.command,
  }));
  return [...read, ...missing];
}

/** A source with the addresses of its page's picture, if it is a page. */
function pictured(source) {
  if (!source || source.kind !== "pages") return undefined;
  const place = source.path.replace(/\/regions\?.*$/, "");
  return { ...source, filename: source.label.replace(/, page \d+$/, ""), image_url: `${place}/image` };
}

function messageParts(message, at, last) {
  const text = contentText(message.content);
  if (message.name !== "context") {
    const section = at === last ? "user" : at === 0 && message.role === "system" ? "system" : "history";
    return [makePart(section, message.role, text, at)];
  }
  const parts = [];
  for (const line of text.split("\n")) {
    const heading = HEADINGS.exec(line);
    if (heading || parts.length === 0) parts.push({ section: SECTION_OF[heading?.[1]] ?? "fixed", lines: [] });
    parts.at(-1).lines.push(line);
  }
  return parts.map(({ section, lines }) => makePart(section, message.role, splitBlocks(lines.join("\n"), SOURCE), at));
}

/** Parse lines of `role: text`; a line without a role continues the message before it. */
export function parseMessages(text, roles = ["user", "assistant"]) {
  const mark = new RegExp(`^(${roles.join("|")}):\\s*(.*)$`);
  const messages = [];
  for (const line of (text ?? "").split("\n")) {
    const match = mark.exec(line);
    if (match) messages.push({ role: match[1], content: match[2] });
    else if (line.trim() && messages.length) messages.at(-1).content += `\n${line}`;
    else if (line.trim()) messages.push({ role: "user", content: line });
  }
  return messages;
}

/** The inverse of `parseMessages`. */
export function formatMessages(messages) {
  return (messages ?? []).map((each) => `${each.role}: ${contentText(each.content)}`).join("\n");
}
