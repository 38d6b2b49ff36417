// api.js: requests to the server that this page came from, with the API key where one is needed.
// SPDX-License-Identifier: Apache-2.0

const KEY = "weir.key";

// For this tab only: a key does not outlive it.
export function setKey(value) {
  if (value) sessionStorage.setItem(KEY, value);
  else sessionStorage.removeItem(KEY);
}

export class ApiError extends Error {
  constructor(status, message, retryAfter, field) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter; // seconds, or null
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
  let message = `${response.status} ${response.statusText}`.trim(), field = null;
  try {
    const body = await response.json();
    if (body.error) message = errorText(body.error);
    field = body.error?.param ?? null;
  } catch {
    // The status has to do.
  }
  const wait = Number(response.headers.get("Retry-After"));
  return new ApiError(response.status, message, wait > 0 ? wait : null, field);
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
