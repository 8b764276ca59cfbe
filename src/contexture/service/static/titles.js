// How candidates are called on the page: by their title and the beginning of their text.

const MAX_TITLE = 96; // characters of a name
const MAX_HEADING = 32; // characters of the heading in it: passages of one page share it

/** The name of each candidate of a stored build by its id, with the messages of its history. */
export function candidateTitles(stored) {
  const titles = new Map();
  const messages = stored?.capsule.request.history;
  for (const [at, each] of (Array.isArray(messages) ? messages : []).entries()) {
    const message = each.message ?? each;
    titles.set(`history[${each.at ?? at}]`, shorten(`${message.role}: ${readText(message.content)}`));
  }
  for (const each of stored?.capsule.candidates ?? []) {
    const heading = shorten(each.title.split(" > ").at(-1), MAX_HEADING);
    titles.set(each.id, shorten([heading, each.text].filter(Boolean).join(": ")));
  }
  return titles;
}

/** The beginning of a text, on one line. */
export function shorten(given, most = MAX_TITLE) {
  const text = given.replace(/\s+/g, " ").trim();
  return text.length > most ? `${text.slice(0, most).trimEnd()}…` : text;
}

function readText(content) {
  return typeof content === "string" ? content : (content ?? []).map((part) => part.text ?? "").join(" ");
}
