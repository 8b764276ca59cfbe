// Permalinks: the address of a build holds its id and the request that gives it again.

/** The part of the address after `#` for a build: its tab, its id and its request. */
export function formatLink({ kind, id, body, user, now }) {
  return `#${kind}/${encodeURIComponent(id)}?r=${toBase64(JSON.stringify({ body, user, now }))}`;
}

/** Parse the part of an address after `#`; `build` is null unless it names one that can be built again. */
export function parseLink(hash) {
  const [place, query = ""] = hash.replace(/^#/, "").split("?");
  const [kind, id = ""] = place.split("/");
  try {
    const request = new URLSearchParams(query).get("r");
    const { body, user, now } = JSON.parse(fromBase64(request));
    const usable = id && typeof body === "object" && body !== null;
    return { kind, build: usable ? { kind, id: decodeURIComponent(id), body, user, now } : null };
  } catch {
    return { kind, build: null };
  }
}

/** Base64 with the letters that need no escape in an address. */
function toBase64(text) {
  const bytes = new TextEncoder().encode(text);
  const letters = Array.from(bytes, (byte) => String.fromCharCode(byte)).join("");
  return btoa(letters).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}

function fromBase64(text) {
  const letters = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return new TextDecoder().decode(Uint8Array.from(letters, (letter) => letter.charCodeAt(0)));
}
