// A slash command over news, and the graph where it asks for one.
import { t } from "../i18n.js";
import { blocks, part, spent, words } from "../parts.js";

const ARTICLE = /^\[(\d+)\] \(/;

export const command = {
  name: "command",
  path: "/v1/context/command",
  loads: "articles",
  method: "build_command",
  budget: { min: 2048, max: 8192, step: 256, start: 4096, hint: true },
  fields: [{ name: "raw_command", rows: 2, hint: true }],
  samples: [
    { name: "/ask", raw_command: '/ask "How many dockers are on strike, and what does the port say?" window=1w' },
    { name: "/graph", raw_command: '/graph query="Ilse Marrow" window=2w hops=2' },
    { name: "/events", raw_command: '/events topic="port strike in Northquay" window=1w k_final=8' },
    { name: "/synthesize", raw_command: '/synthesize тема="забастовка докеров" window=1w' },
    { name: "/trends", raw_command: "/trends window=24h" },
  ],

  request(values, budget) {
    return { raw_command: values.raw_command, env: { defaults: { max_tokens: budget } } };
  },

  /** What is executed beside the build, for its graph. */
  also(values) {
    return /^\s*\/(graph|граф)/i.test(values.raw_command)
      ? { path: "/v1/commands", body: { raw_command: values.raw_command } }
      : null;
  },

  read(answer) {
    const last = answer.messages.length - 1;
    const parts = answer.messages.map((message, at) => shown(message, at, last));
    const documents = spent(answer.ledger, "documents");
    return {
      id: answer.telemetry.correlation_id,
      tokens: answer.tokens,
      limit: answer.limits.max_tokens,
      parts,
      sections: [
        { name: "documents", tokens: documents },
        { name: "fixed", tokens: answer.tokens - documents },
      ],
      notes: answer.recovery.map((step) => ({ source: step.rung, reason: t("rung", { done: step.done, n: step.found }) })),
      cite: (number) => cited(answer, number),
    };
  },
};

function shown(message, at, last) {
  const text = words(message.content);
  if (message.name === "context") return part("documents", message.role, blocks(text, ARTICLE));
  return part(at === last && message.role === "user" ? "user" : "system", message.role, text);
}

function cited(answer, number) {
  const document = answer.retrieval.docs[number - 1];
  return document && answer.citations.filter((citation) => citation.record_id === document.article_id);
}
