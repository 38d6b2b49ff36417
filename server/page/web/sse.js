// sse.js: Server-Sent Events out of a fetch response, which unlike EventSource may be a POST and carry a key.
// SPDX-License-Identifier: Apache-2.0

// Yields {event, data, id} for each event with data; id is the last that was told, as Last-Event-ID wants it. `onComment` hears of comments: signs of life.
// Ends with the stream; an event that the stream's end cuts off is not one.
export async function* events(response, onComment = () => {}) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "", event = "", id = "", data = [], skipLf = false;
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      let text = decoder.decode(value, { stream: true });
      if (text === "") continue;
      // A CR ends a line at once; the LF that may follow it can come with the next piece.
      if (skipLf && text[0] === "\n") text = text.slice(1);
      skipLf = text === "" ? false : text.endsWith("\r");
      const lines = (rest + text).split(/\r\n|\r|\n/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield { event: event || "message", data: data.join("\n"), id };
          event = "";
          data = [];
          continue;
        }
        const colon = line.indexOf(":");
        const field = colon < 0 ? line : line.slice(0, colon);
        let content = colon < 0 ? "" : line.slice(colon + 1);
        if (content[0] === " ") content = content.slice(1);
        if (field === "data") data.push(content);
        else if (field === "event") event = content;
        else if (field === "id") id = content;
        else if (field === "") onComment(content);
      }
    }
  } finally {
    // Whoever stops reading early ends the transfer too.
    reader.cancel().catch(() => {});
  }
}
