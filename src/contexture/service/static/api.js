// The service's own routes, asked as the chosen user or with the key that was given.
import { keep, kept } from "./kept.js";

/** A refusal in the service's words. */
export class Refusal extends Error {
  constructor(status, told) {
    super(told?.error?.user_message ?? `HTTP ${status}`);
    this.status = status;
    this.code = told?.error?.code ?? "UNAVAILABLE";
    this.correlation = told?.meta?.correlation_id ?? "";
  }
}

/** Users of a demonstration with their groups; none elsewhere. */
export const USERS = JSON.parse(document.querySelector("meta[name=contexture-users]").content);
export const DEMO = Object.keys(USERS).length > 0;

export const asker = { user: DEMO ? Object.keys(USERS)[0] : "", key: kept("key", "sessionStorage") ?? "" };

export function useKey(key) {
  asker.key = key;
  keep("key", key || null, "sessionStorage");
}

export function headers(sent) {
  const found = sent ? { "Content-Type": "application/json" } : {};
  if (asker.user) found["X-Contexture-User"] = encodeURIComponent(asker.user);
  if (asker.key) found.Authorization = `Bearer ${asker.key}`;
  return found;
}

/** The answer, its JSON as text, and what the server says it spent. */
export async function ask(method, path, body, signal) {
  const said = await answered(method, path, body, signal);
  const text = await said.text();
  return { json: JSON.parse(text), text, timings: timings(said.headers.get("Server-Timing") ?? "") };
}

/** The answer's bytes. */
export async function bytes(path) {
  return (await answered("GET", path)).blob();
}

/** Send a body that may be long; `progress` hears the share that has left. */
export function upload(path, body, progress) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    for (const [name, value] of Object.entries(headers(true))) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => progress(event.loaded / event.total));
    request.addEventListener("error", () => failed(new Refusal(0)));
    request.addEventListener("load", () => {
      const told = parsed(request.responseText);
      if (request.status < 300) done(told);
      else failed(new Refusal(request.status, told));
    });
    request.send(JSON.stringify(body));
  });
}

async function answered(method, path, body, signal) {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const said = await fetch(path, { method, body: sent, headers: headers(sent), signal, cache: "no-store" });
  if (!said.ok) throw new Refusal(said.status, parsed(await said.text()));
  return said;
}

function parsed(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function timings(header) {
  return header
    .split(",")
    .map((each) => /^\s*([\w-]+);dur=([\d.]+)/.exec(each))
    .filter(Boolean)
    .map(([, name, spent]) => ({ name, ms: Number(spent) }));
}
