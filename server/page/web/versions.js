// versions.js: former versions of a chat's end. An edit, or another answer, takes the place of all messages from
// there on; the message that begins them keeps the others as `versions`: {before: [messages, …], after: […]}.
// SPDX-License-Identifier: Apache-2.0

// A failed attempt is nothing to go back to.
const worthKeeping = ({ content, reasoning, calls }) => Boolean(content || reasoning || calls?.length);

function takeEnd(messages, index) {
  const end = messages.splice(index);
  const versions = end[0].versions ?? { before: [], after: [] };
  delete end[0].versions;
  return { end, versions };
}

// Takes the messages from `index` on away. Gives what the message that comes in their place keeps as `versions`.
export function fork(messages, index) {
  const { end, versions: { before, after } } = takeEnd(messages, index);
  const all = [...before, ...(worthKeeping(end[0]) ? [end] : []), ...after];
  return all.length ? { before: all, after: [] } : undefined;
}

// Shows the version before (step -1) or after (step 1) the one that now begins at `index`.
export function turn(messages, index, step) {
  const { end, versions } = takeEnd(messages, index);
  const { before, after } = versions;
  let shown;
  if (step < 0) {
    shown = before.pop();
    after.unshift(end);
  } else {
    shown = after.shift();
    before.push(end);
  }
  shown[0].versions = versions;
  messages.push(...shown);
}

// Which version a message begins, and of how many.
export function versionOf({ versions }) {
  const before = versions?.before.length ?? 0, after = versions?.after.length ?? 0;
  return { number: before + 1, count: before + 1 + after };
}
