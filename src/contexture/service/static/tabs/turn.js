// A chat turn: instructions, history, memories and the user's message.
import { splitBlocks, makePart, contentText } from "../parts.js";
import { formatMessages, parseMessages } from "./ask.js";

const ROLES = ["user", "assistant", "system"];
const MEMORY = /^\[(\d+)\] \(/;
const SYSTEM = "You help the crew of a harbour with their tide gauges. Answer in a few sentences.";

export const turn = {
  name: "turn",
  path: "/v1/context/turn?remember=false", // looking at a prompt stores no summary
  loads: "memories",
  idPath: ["build_id"],
  budget: { min: 80, max: 1200, step: 10, start: 260 },
  fields: [
    { name: "user_message", rows: 3 },
    { name: "system_prompt", rows: 2, optional: true },
    { name: "history", rows: 4, optional: true, hint: true },
  ],
  samples: [
    {
      name: "Reset a gauge",
      user_message: "The gauge lost power. How do I reset it, and whom do I tell?",
      system_prompt: SYSTEM,
      history:
        "user: Good morning! I am on my way to Drossel, reach me at demo@northquay.example.\n" +
        "assistant: Good morning! What is the matter there?\n" +
        "user: Nothing yet, but the night was stormy.\n" +
        "assistant: Then look at the outer quay first.",
    },
    {
      name: "Перезапуск датчика",
      user_message: "После шторма датчик обесточен. Как его перезапустить и что записать?",
      system_prompt: SYSTEM,
      history: "",
    },
    {
      name: "What will it cost?",
      user_message: "What would new power supplies for the gauges cost?",
      system_prompt: SYSTEM,
      history: "",
    },
  ],

  request(values, budget) {
    return {
      user_message: values.user_message,
      ...(values.system_prompt ? { system_prompt: values.system_prompt } : {}),
      history: parseMessages(values.history, ROLES),
      max_prompt_tokens: budget,
    };
  },

  values: (body) => ({ ...body, history: formatMessages(body.history) }),
  limit: (body) => body.max_prompt_tokens,
  title: (body) => body.user_message,

  read(answer) {
    const last = answer.messages.length - 1;
    return {
      id: answer.build_id,
      tokens: answer.tokens,
      limit: answer.max_prompt_tokens,
      parts: answer.messages.map((message, at) => messagePart(message, at, last)),
      sections: [
        { name: "system", tokens: answer.token_counts.system },
        { name: "history", tokens: answer.token_counts.history },
        { name: "memory", tokens: answer.token_counts.snippets },
        { name: "user", tokens: answer.token_counts.user },
      ],
      cite: (number) => findCitations(answer, number),
    };
  },
};

function messagePart(message, at, last) {
  const text = contentText(message.content);
  if (message.name === "memory") return makePart("memory", message.role, splitBlocks(text, MEMORY), at);
  if (at === last) return makePart("user", message.role, text, at);
  return makePart(at === 0 && message.role === "system" ? "system" : "history", message.role, text, at);
}

function findCitations(answer, number) {
  const snippet = answer.snippets[number - 1];
  return snippet && answer.citations.filter((citation) => citation.record_id === snippet.id);
}
