// api.js: requests to the server that this page came from, with the API key where one is needed.
// SPDX-License-Identifier: Apache-2.0

const KEY = "weir.key";

// For this tab only: a key does not outlive it.
export function setKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

export const hasKey = () => sessionStorage.getItem(KEY) !== null;

export class ApiError extends Error {
  constructor(status, message, { code = null, retryAfter = null, field = null } = {}) {
    super(message);
    this.status = status;
    this.code = code; // the server's name for what is wrong
    this.retryAfter = retryAfter; // seconds
    this.field = field; // of the request, that it is about
  }
}

// What an OpenAI-shaped error object says, and the field that it is about.
export function errorText(error) {
  if (typeof error === "string") return error;
  const message = error?.message ?? JSON.stringify(error);
  return error?.param && !message.includes(error.param) ? `${error.param}: ${message}` : message;
}

async function failure(response) {
  const { error } = await response.json().catch(() => ({})); // without a body, the status has to do
  const message = error ? errorText(error) : `${response.status} ${response.statusText}`.trim();
  const retryAfter = Number(response.headers.get("Retry-After")) || null;
  return new ApiError(response.status, message, { code: error?.code, retryAfter, field: error?.param });
}

// The response, or an ApiError. Paths are relative, so that a proxy may serve the page below a prefix.
export async function request(path, { body, signal, headers = {} } = {}) {
  headers = { ...headers };
  const key = sessionStorage.getItem(KEY);
  if (key) headers.Authorization = "Bearer " + key;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, {
    method: body === undefined ? "GET" : "POST",
    headers,
    body: body === undefined ? undefined : JSON.stringify(body),
    signal,
    cache: "no-store",
  });
  if (!response.ok) throw await failure(response);
  return response;
}
