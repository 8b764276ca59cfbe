// Requests to the service, as the chosen user or with the given API key.
import { loadItem, saveItem } from "./storage.js";

/** An error response of the service, with its message. */
export class ApiError extends Error {
  constructor(status, body) {
    super(body?.error?.user_message ?? `HTTP ${status}`);
    this.status = status;
    this.code = body?.error?.code ?? "UNAVAILABLE";
    this.correlation = body?.meta?.correlation_id ?? "";
  }
}

/** Users of a demonstration with their groups; empty elsewhere. */
export const USERS = JSON.parse(document.querySelector("meta[name=contexture-users]").content);
export const DEMO = Object.keys(USERS).length > 0;

export const caller = { user: DEMO ? Object.keys(USERS)[0] : "", key: loadItem("key", "sessionStorage") ?? "" };

export function setKey(key) {
  caller.key = key;
  saveItem("key", key || null, "sessionStorage");
}

/** The headers of a request, as `user` instead of the chosen one, with `now` as the clock. */
export function headers(sent, { user = caller.user, now = "" } = {}) {
  const result = sent ? { "Content-Type": "application/json" } : {};
  if (user) result["X-Contexture-User"] = encodeURIComponent(user);
  if (now && !caller.key) result["X-Contexture-Now"] = now;
  if (caller.key) result.Authorization = `Bearer ${caller.key}`;
  return result;
}

/** Send a request; returns the JSON, its text, and the timings of the server. */
export async function requestJson(method, path, body, signal, as = {}) {
  const response = await sendRequest(method, path, body, signal, as);
  const text = await response.text();
  return { json: JSON.parse(text), text, timings: parseTimings(response.headers.get("Server-Timing") ?? "") };
}

/** Return the body of a response as a blob. */
export async function requestBlob(path) {
  return (await sendRequest("GET", path)).blob();
}

/** Send a large body; `progress` is called with the share that was sent. */
export function upload(path, body, progress) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("POST", path);
    for (const [name, value] of Object.entries(headers(true))) request.setRequestHeader(name, value);
    request.upload.addEventListener("progress", (event) => progress(event.loaded / event.total));
    request.addEventListener("error", () => failed(new ApiError(0)));
    request.addEventListener("load", () => {
      const answer = parseJson(request.responseText);
      if (request.status < 300) done(answer);
      else failed(new ApiError(request.status, answer));
    });
    request.send(JSON.stringify(body));
  });
}

async function sendRequest(method, path, body, signal, as = {}) {
  const sent = body === undefined ? undefined : JSON.stringify(body);
  const response = await fetch(path, { method, body: sent, headers: headers(sent, as), signal, cache: "no-store" });
  if (!response.ok) throw new ApiError(response.status, parseJson(await response.text()));
  return response;
}

function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function parseTimings(header) {
  return header
    .split(",")
    .map((each) => /^\s*([\w-]+);dur=([\d.]+)/.exec(each))
    .filter(Boolean)
    .map(([, name, duration]) => ({ name, ms: Number(duration) }));
}
