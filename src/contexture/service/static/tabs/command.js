// A slash command over news, with its graph if it is /graph.
import { t } from "../i18n.js";
import { splitBlocks, makePart, sectionTokens, contentText } from "../parts.js";

const ARTICLE = /^\[(\d+)\] \(/;

export const command = {
  name: "command",
  path: "/v1/context/command",
  loads: "articles",
  idPath: ["telemetry", "correlation_id"],
  budget: { min: 2048, max: 8192, step: 256, start: 4096, hint: true },
  fields: [{ name: "raw_command", rows: 2, hint: true }],
  samples: [
    { name: "/ask", raw_command: '/ask "How many dockers are on strike, and what does the port say?" window=1w' },
    { name: "/graph", raw_command: '/graph query="Ilse Marrow" window=2w hops=2' },
    { name: "/events", raw_command: '/events topic="port strike in Northquay" window=1w k_final=8' },
    { name: "/synthesize", raw_command: '/synthesize тема="забастовка докеров" window=1w' },
  ],

  request(values, budget) {
    return { raw_command: values.raw_command, env: { defaults: { max_tokens: budget } } };
  },

  values: (body) => ({ raw_command: body.raw_command }),
  limit: (body) => body.env.defaults.max_tokens,
  title: (body) => body.raw_command,

  /** A second request that executes the command, for its graph. */
  extraRequest(values) {
    return /^\s*\/(graph|граф)/i.test(values.raw_command)
      ? { path: "/v1/commands", body: { raw_command: values.raw_command } }
      : null;
  },

  read(answer) {
    const last = answer.messages.length - 1;
    const parts = answer.messages.map((message, at) => messagePart(message, at, last));
    const documents = sectionTokens(answer.ledger, "documents");
    return {
      id: answer.telemetry.correlation_id,
      tokens: answer.tokens,
      limit: answer.limits.max_tokens,
      parts,
      sections: [
        { name: "documents", tokens: documents },
        { name: "fixed", tokens: answer.tokens - documents },
      ],
      notes: answer.recovery.map((step) => ({ source: step.rung, reason: t("recovery", { done: step.done, n: step.found }) })),
      cite: (number) => findCitations(answer, number),
    };
  },
};

function messagePart(message, at, last) {
  const text = contentText(message.content);
  if (message.name === "context") return makePart("documents", message.role, splitBlocks(text, ARTICLE), at);
  return makePart(at === last && message.role === "user" ? "user" : "system", message.role, text, at);
}

function findCitations(answer, number) {
  const document = answer.retrieval.docs[number - 1];
  return document && answer.citations.filter((citation) => citation.record_id === document.article_id);
}
