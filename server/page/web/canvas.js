// canvas.js: canvases that are as sharp as the screen, in the style sheet's colours.
// SPDX-License-Identifier: Apache-2.0

let colours = null;
const listeners = new Set();

// The custom properties that drawings use, as they are in the theme of now.
export function palette() {
  if (!colours) {
    // A property may be a choice between two colours: what an element of that colour has is one.
    const probe = document.createElement("span");
    document.body.append(probe);
    colours = {};
    for (const name of ["prefill", "decode", "draft", "joined", "suspended", "track", "line", "muted", "ink"]) {
      probe.style.color = `var(--${name})`;
      colours[name] = getComputedStyle(probe).color;
    }
    probe.remove();
  }
  return colours;
}

export function refreshPalette() {
  colours = null;
  for (const draw of listeners) draw();
}

for (const query of ["(prefers-color-scheme: dark)", "(prefers-contrast: more)"]) matchMedia(query).addEventListener("change", refreshPalette);

export function onTheme(draw) {
  listeners.add(draw);
  return () => listeners.delete(draw);
}

// {context, width, height} in CSS pixels, emptied; null while the canvas has no size.
export function prepare(canvas) {
  const width = canvas.clientWidth, height = canvas.clientHeight, scale = devicePixelRatio || 1;
  if (!width || !height) return null;
  const w = Math.round(width * scale), h = Math.round(height * scale);
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}
