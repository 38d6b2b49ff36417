// answer.js: how an answer comes in: asked for, streamed, and taken up again where a connection ends.
// SPDX-License-Identifier: Apache-2.0
//
// A job is an answer that comes: {controller, message, stopped, left: another chat is shown, note: what it waits for in
// words, read: how much of the prompt is read, 0 to 1, or null, waiting: nothing is asked of the server just now}; changed() is called when message or note have, keep() when
// the message is to be kept at once. Its message is as in message.js.
import { request, errorText, ApiError } from "./api.js";
import { allSlotsBusy } from "./engine.js";
import { loadingWords, modelsTakeTurns } from "./models.js";
import { events } from "./sse.js";

const RETRY_S = [1, 2, 4, 5]; // to reach a server that is away, then every 5 s
const QUEUE_MS = 2000; // between two looks at the queue
const LOAD_MS = 500; // and at a model that is being loaded

const AWAY = "The server cannot be reached.";
const BROKEN = "The connection ended before the answer did.";
const GONE = "The server no longer has this answer: it was restarted, or nobody was there for too long.";
const REFUSALS = {
  queue_full: "The server is busy, and its queue is full.",
  rate_limit_exceeded: "This key has its maximum number of requests running.",
  loading: "The server is loading the model.",
  model_busy: "Other models have the server's memory.",
  stopping: "The server is shutting down.",
};

let resumable = true; // until the server says that it keeps no streams

const begun = ({ stats, before = 0 }) => stats.tokens > before;

export const newJob = (message) => ({ controller: new AbortController(), message, stopped: false, left: false, note: "", read: null, waiting: false });

const pause = (ms, signal) => new Promise((resolve) => {
  const timer = setTimeout(resolve, ms);
  signal.addEventListener("abort", () => (clearTimeout(timer), resolve()), { once: true });
});

function note(job, text) {
  if (job.note === text) return;
  job.note = text;
  job.changed();
}

// The prompt's prefill, as the server tells of it; null: it has ended.
function showRead(job, progress) {
  const reads = progress !== null && progress.processed < progress.total;
  job.read = reads ? progress.processed / progress.total : null;
  note(job, reads ? `Reading the prompt, ${progress.processed} of ${progress.total} tokens` : "");
}

// ---- Requests that wait for the server ----

// The same request may pass later: the server is away, full, or not ready.
const mayPass = (e) => e instanceof TypeError || e.status === 429 || (e.status === 503 && e.code !== "work_timeout");

async function countDown(job, reason, seconds) {
  job.waiting = true;
  for (; seconds > 0 && !job.controller.signal.aborted; seconds--) {
    note(job, `${reason} Trying again in ${seconds} s`);
    await pause(1000, job.controller.signal);
  }
  job.waiting = false;
  note(job, "");
}

// What attempt() gives, as soon as the server lets it pass or the job is stopped.
async function persist(job, attempt) {
  for (let i = 0; ; i++) {
    try {
      return await attempt();
    } catch (e) {
      if (job.controller.signal.aborted || !mayPass(e)) throw e;
      const reason = e instanceof TypeError ? AWAY : REFUSALS[e.code] ?? e.message + ".";
      await countDown(job, reason, e.retryAfter ?? RETRY_S[Math.min(i, RETRY_S.length - 1)]);
    }
  }
}

// How many requests go first, or -1: there is a slot for this one.
async function place(job, body) {
  const plan = await (await request("v1/plan", { body, signal: job.controller.signal })).json();
  return plan.queue_place - 1;
}

// Says how many go first, until none does or the answer begins. A later dry run stands behind this request, and others
// may have come between them: it says at most how many are ahead.
async function watchQueue(job, body, ahead) {
  const { message, controller: { signal } } = job;
  try {
    while (ahead >= 0) {
      note(job, ahead === 0 ? "Next in the queue" : `In the queue, ${ahead} ahead of you`);
      await pause(QUEUE_MS, signal);
      if (signal.aborted || begun(message) || job.read !== null) return;
      ahead = Math.min(ahead, (await place(job, body)) - 1);
      if (begun(message) || job.read !== null) return;
    }
  } catch {
    // The answer does not depend on this note.
  }
  note(job, "");
}

// Shows how far the model is loaded, until done() says that the answer begins.
async function watchLoad(job, model, done) {
  const { signal } = job.controller;
  try {
    for (;;) {
      await pause(LOAD_MS, signal);
      if (signal.aborted || done()) return;
      const words = await loadingWords(model, signal);
      if (!done()) note(job, words);
    }
  } catch {
    // The answer does not depend on this note.
  }
}

// Sends the request; the response that streams the answer.
async function ask(job, body) {
  const { signal } = job.controller;
  let ahead = -1;
  const attempt = async () => {
    let done = false;
    ahead = allSlotsBusy() ? await place(job, body).catch(() => -1) : -1;
    if (modelsTakeTurns() && ahead < 0) watchLoad(job, body.model, () => done);
    try {
      return await request("v1/chat/completions", {
        body: { ...body, stream: true, stream_options: { include_usage: true, continuous_usage_stats: true }, return_progress: true, resume: resumable || undefined },
        signal,
      });
    } finally {
      done = true;
      note(job, "");
    }
  };
  const response = await persist(job, attempt).catch((e) => {
    if (!resumable || e.field !== "resume") throw e;
    resumable = false;
    return persist(job, attempt);
  });
  if (ahead >= 0) watchQueue(job, body, ahead);
  return response;
}

// A response that goes on after the last event that was taken; null: there is nothing more.
async function again(job) {
  const { message, controller: { signal } } = job;
  const path = "v1/streams/" + encodeURIComponent(message.stream);
  try {
    const response = await persist(job, () => request(path, { signal, headers: { "Last-Event-ID": message.event ?? "0" } }));
    return response.status === 204 ? null : response;
  } catch (e) {
    throw e.status === 404 || e.status === 410 ? new Error(GONE) : e;
  }
}

// ---- Streams ----

function takeDelta(message, delta) {
  if (delta.reasoning_content) message.reasoning = (message.reasoning ?? "") + delta.reasoning_content;
  if (delta.content) message.content += delta.content;
  for (const part of delta.tool_calls ?? []) {
    message.calls ??= [];
    const call = (message.calls[part.index ?? 0] ??= { id: "", name: "", arguments: "" });
    if (part.id) call.id = part.id;
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }
  return Boolean(delta.reasoning_content || delta.content || delta.tool_calls);
}

// Adds received deltas to the message; returns whether that was all. started: when it was asked for, 0 where that was before this
// page was there: then times say nothing.
async function take(job, response, started) {
  const { message } = job, { stats } = message;
  let first = 0, firstTokens = 0;
  for await (const { data, id } of events(response)) {
    if (data === "[DONE]") return true;
    const event = JSON.parse(data);
    if (event.error) throw new ApiError(0, errorText(event.error), { code: event.error.code });
    if (id) message.event = id;
    if (event.usage) { // each has it: so far
      stats.tokens = (message.before ?? 0) + event.usage.completion_tokens;
      stats.prompt = event.usage.prompt_tokens;
      stats.cached = event.usage.prompt_tokens_details?.cached_tokens ?? 0;
    }
    if (event.prompt_progress) showRead(job, event.prompt_progress);
    const choice = event.choices?.[0];
    if (!choice) continue;
    if (choice.finish_reason) message.finish = choice.finish_detail === "cancelled" ? "stopped" : choice.finish_reason;
    if (!choice.delta || !takeDelta(message, choice.delta)) continue;
    const now = performance.now();
    if (!first) {
      first = now;
      firstTokens = stats.tokens;
      showRead(job, null);
      if (started) stats.ttftMs = now - started;
    }
    if (started) {
      stats.decodeMs = now - first;
      stats.decoded = stats.tokens - firstTokens; // in that time
    }
    if (started && message.reasoning && !message.content) stats.reasoningMs = now - first;
    job.changed();
  }
  return false;
}

// All of an answer, over as many connections as it takes. body: the request; null: it was sent before.
export async function receiveAnswer(job, body) {
  const { message, controller } = job, started = body ? performance.now() : 0;
  let response = null, lost = !body;
  if (body) {
    response = await ask(job, body);
    message.stream = response.headers.get("X-Stream-Id") ?? undefined;
    if (job.stopped) {
      controller.abort();
      cancelAnswer(message);
    }
    job.keep();
  }
  for (;;) {
    if (lost && (response = await again(job)) === null) return;
    try {
      if (await take(job, response, lost ? 0 : started)) return;
    } catch (e) {
      if (controller.signal.aborted || e instanceof ApiError) throw e;
      if (!message.stream) throw new Error(BROKEN);
    }
    if (!message.stream) {
      if (message.finish) return;
      throw new Error(BROKEN);
    }
    lost = true;
  }
}

// The connection's end alone would let it go on for a while.
export function cancelAnswer(message) {
  if (message.stream) request(`v1/streams/${encodeURIComponent(message.stream)}/cancel`, { body: {} }).catch(() => {});
}

// The model answers with what it has thought so far. The stream's id is the answer's.
export function endReasoning(message) {
  if (message.stream) request("v1/chat/completions/control", { body: { id: message.stream, action: "reasoning_end" } }).catch(() => {});
}

// Where the stream's id is not known yet, it is cancelled when it comes; a second time ends the connection all the same.
export function stopAnswer(job) {
  if (job.message.stream || job.stopped || job.waiting || !resumable) job.controller.abort();
  cancelAnswer(job.message);
  job.stopped = true;
}
