// media.js: images and sounds of a message: converted to formats that the server reads, sent, shown.
// SPDX-License-Identifier: Apache-2.0
//
// They are files as in files.js: {name, image} or {name, audio}, a data: URL. The page's policy lets no element load
// one; a canvas shows images.
import { element } from "./dom.js";

const MAX_SIDE = 1024; // pixels; localStorage has room for a few MB
const KEEP_IMAGE = 400 << 10; // bytes; images up to this size are sent unchanged
const KEEP_AUDIO = 2 << 20; // likewise sounds
const MAX_AUDIO = 16 << 20; // of a sound that is converted
const RATE = 16000; // Hz, of a sound that is converted
const URL_FORM = /^data:(?:image|audio)\/[\w.+-]+;base64,[A-Za-z0-9+/=]+$/;

const WORDS = { image: "images", audio: "sounds" };

let modalities = ["text"];

export const setModalities = (list) => (modalities = list);
export const readsMedia = () => modalities.length > 1;

// "image", "audio", or "": a file of another kind. An SVG is a text.
export function kindOf({ type }) {
  if (type.startsWith("image/") && !type.startsWith("image/svg")) return "image";
  return type.startsWith("audio/") ? "audio" : "";
}

export const isMedia = ({ image, audio }) => Boolean(image || audio);

// ---- Reading ----

const urlOf = (blob) => new Promise((resolve, reject) => {
  const reader = new FileReader();
  reader.onload = () => resolve(reader.result);
  reader.onerror = () => reject(new Error("it cannot be read"));
  reader.readAsDataURL(blob);
});

function blobOf(url) {
  const comma = url.indexOf(",");
  return new Blob([Uint8Array.from(atob(url.slice(comma + 1)), (c) => c.charCodeAt(0))], { type: url.slice(5, comma).split(";")[0] });
}

const starts = (bytes, text) => [...text].every((c, i) => bytes[i] === c.charCodeAt(0));

// Closes the bitmap.
function draw(bitmap, canvas, side) {
  const scale = Math.min(1, side / Math.max(bitmap.width, bitmap.height));
  canvas.width = Math.max(1, Math.round(bitmap.width * scale));
  canvas.height = Math.max(1, Math.round(bitmap.height * scale));
  const context = canvas.getContext("2d");
  context.fillStyle = "white"; // behind transparent pixels, as on the server
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(bitmap, 0, 0, canvas.width, canvas.height);
  bitmap.close();
}

// Small PNG and JPEG files stay as they are; other images that the browser reads become JPEG.
async function readImage(file) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error("this browser cannot read it");
  }
  const bytes = new Uint8Array(await file.slice(0, 4).arrayBuffer());
  const known = starts(bytes, "\x89PNG") || starts(bytes, "\xff\xd8\xff");
  const small = file.size <= KEEP_IMAGE && Math.max(bitmap.width, bitmap.height) <= MAX_SIDE;
  if (known && small) {
    bitmap.close();
    return urlOf(file);
  }
  const canvas = document.createElement("canvas");
  draw(bitmap, canvas, MAX_SIDE);
  return urlOf(await new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.85)));
}

// One channel of 16 bits.
function wav(buffer) {
  const n = buffer.length, view = new DataView(new ArrayBuffer(44 + 2 * n));
  const channels = Array.from({ length: buffer.numberOfChannels }, (_, i) => buffer.getChannelData(i));
  const text = (at, words) => [...words].forEach((c, i) => view.setUint8(at + i, c.charCodeAt(0)));
  text(0, "RIFF");
  view.setUint32(4, 36 + 2 * n, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, RATE, true);
  view.setUint32(28, 2 * RATE, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  text(36, "data");
  view.setUint32(40, 2 * n, true);
  for (let i = 0; i < n; i++) {
    const mean = channels.reduce((sum, channel) => sum + channel[i], 0) / channels.length;
    view.setInt16(44 + 2 * i, Math.max(-1, Math.min(1, mean)) * 32767, true);
  }
  return new Blob([view], { type: "audio/wav" });
}

// Small FLAC and MP3 files, and WAVs of integers or floats (formats 1 and 3), stay as they are; other sounds that the
// browser reads become WAV.
async function readAudio(file) {
  const bytes = new Uint8Array(await file.slice(0, 22).arrayBuffer());
  const known = (starts(bytes, "RIFF") && (bytes[20] === 1 || bytes[20] === 3) && bytes[21] === 0)
    || ["fLaC", "ID3", "\xff\xfb", "\xff\xf3"].some((text) => starts(bytes, text));
  if (known && file.size <= KEEP_AUDIO) return urlOf(file);
  let buffer;
  try {
    buffer = await new OfflineAudioContext(1, 1, RATE).decodeAudioData(await file.arrayBuffer());
  } catch {
    throw new Error("this browser cannot read it");
  }
  if (2 * buffer.length > MAX_AUDIO) throw new Error(`it is longer than ${Math.floor(MAX_AUDIO / 2 / RATE / 60)} minutes`);
  return urlOf(wav(buffer));
}

// A file of a kind, for a message. Throws an Error that says why there is none.
export async function readMedia(file, kind) {
  if (!modalities.includes(kind)) throw new Error(`this model reads no ${WORDS[kind]}${readsMedia() ? "" : "; one that does has a projector (weir serve --mmproj)"}`);
  return { name: file.name, [kind]: await (kind === "image" ? readImage : readAudio)(file) };
}

// The image or sound of an imported file, or undefined.
export function cleanMedia({ name, image, audio }) {
  const kind = image ? "image" : "audio", url = image ?? audio;
  return typeof url === "string" && URL_FORM.test(url) ? { name: String(name), [kind]: url } : undefined;
}

// ---- Sending and showing ----

// A content with the media of its message before the text.
export function withMedia(text, files = []) {
  const parts = files.filter(isMedia).map(({ image, audio }) => image
    ? { type: "image_url", image_url: { url: image } }
    : { type: "input_audio", input_audio: { data: audio.slice(audio.indexOf(",") + 1), format: audio.slice(5, audio.indexOf(";")).replace(/^audio\/(?:x-)?/, "") } });
  if (!parts.length) return text;
  return text ? [...parts, { type: "text", text }] : parts;
}

// An image, at most `side` pixels wide and high; a sound's name.
export function mediaView({ name, image }, side) {
  if (!image) return element("span", { class: "sound" }, name);
  const canvas = element("canvas", { role: "img", "aria-label": name, title: name, width: 1, height: 1 });
  createImageBitmap(blobOf(image)).then((bitmap) => draw(bitmap, canvas, side), () => canvas.replaceWith(name));
  return canvas;
}
