// A research question over the pages of documents, with its sources.
import { splitBlocks, makePart, sectionTokens, contentText } from "../parts.js";

const SOURCE = /^\[Document (\d+): /;

export const research = {
  name: "research",
  path: "/v1/context/research",
  loads: "documents",
  idPath: ["build_id"],
  budget: { min: 120, max: 3000, step: 20, start: 620 },
  fields: [
    { name: "query", rows: 2 },
    { name: "search_mode", options: ["hybrid", "text", "visual"] },
    { name: "num_results", type: "number", min: 1, max: 20 },
  ],
  samples: [
    {
      name: "Tidal pilot",
      query: "What did the tidal pilot cost, and when are the turbines paid back?",
      search_mode: "hybrid",
      num_results: "5",
    },
    { name: "Revenue table", query: "revenue and costs by quarter", search_mode: "visual", num_results: "4" },
    { name: "Насосы", query: "Сколько стоит ремонт насосов?", search_mode: "hybrid", num_results: "4" },
  ],

  request(values, budget) {
    return {
      query: values.query,
      search_mode: values.search_mode,
      num_results: Number(values.num_results) || 5,
      max_tokens: budget,
    };
  },

  values: (body) => ({ ...body, num_results: String(body.num_results) }),
  limit: (body) => body.max_tokens,
  title: (body) => body.query,

  read(answer) {
    const pages = sectionTokens(answer.ledger, "pages");
    return {
      id: answer.build_id,
      tokens: answer.total_tokens,
      limit: answer.max_tokens,
      parts: answer.messages.flatMap((message, at) => messageParts(message, answer.formatted_text, at)),
      sections: [
        { name: "pages", tokens: pages },
        { name: "fixed", tokens: Math.max(0, answer.total_tokens - pages) },
      ],
      sources: answer.sources,
      cite: (number) => answer.sources[number - 1]?.citations,
      source: (number) => answer.sources[number - 1],
    };
  },
};

/** Split a message into the pages and the text around them. */
function messageParts(message, pages, place) {
  const text = contentText(message.content);
  const at = pages ? text.indexOf(pages) : -1;
  if (at < 0) return [makePart(message.role === "system" ? "system" : "user", message.role, text, place)];
  const around = (rest) => (rest.trim() ? [makePart("user", message.role, rest.trim(), place)] : []);
  return [
    ...around(text.slice(0, at)),
    makePart("pages", message.role, splitBlocks(pages, SOURCE), place),
    ...around(text.slice(at + pages.length)),
  ];
}
