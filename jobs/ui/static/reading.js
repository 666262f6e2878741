// How values are read: times in the zone that one prefers, JSON in colours, a value in the clipboard. The server's HTML is in UTC, and plain.
"use strict";

const ZONE = "sparkonce.times";
const zone = document.getElementById("zone");
const TIME = /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}$/;
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"]];

zone.value = stored(ZONE) ?? "utc";
if (zone.selectedIndex < 0) zone.value = "utc";
zone.addEventListener("change", () => {
  try { localStorage.setItem(ZONE, zone.value); } catch { /* kept for this page alone */ }
  showTimes();
});
setInterval(() => { if (zone.value === "ago" && !document.hidden) showTimes(); }, 1000);

function stored(name) {
  try { return localStorage.getItem(name); } catch { return null; }
}

function showTimes() {
  const cells = document.querySelectorAll("#main td.time");
  zone.parentElement.hidden = cells.length === 0;
  for (const cell of cells) {
    const utc = cell.dataset.utc ??= cell.textContent.trim();
    cell.dataset.sort ??= utc;
    const shown = TIME.test(utc) ? inZone(utc) : utc;
    if (cell.textContent !== shown) cell.textContent = shown;
    nameColumn(cell);
  }
}

// The heading over a time says its zone.
function nameColumn(cell) {
  const head = cell.closest("table").tHead?.rows[0]?.cells[cell.cellIndex], place = head?.querySelector("button") ?? head;
  if (!place) return;
  const utc = head.dataset.utc ??= place.textContent, shown = utc.replace(" (UTC)", { utc: " (UTC)", local: " (local)", ago: "" }[zone.value]);
  if (place.textContent !== shown) place.textContent = shown;
  if (cell.dataset.label !== undefined) cell.dataset.label = shown;
}

function inZone(utc) {
  if (zone.value === "utc") return utc;
  const at = new Date(utc.replace(" ", "T") + "Z");
  if (zone.value === "ago") return ago((Date.now() - at) / 1000);
  const two = (number, digits = 2) => String(number).padStart(digits, "0");
  return `${two(at.getFullYear(), 4)}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` +
    `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${two(at.getMilliseconds(), 3)}`;
}

function ago(seconds) {
  const [size, unit] = UNITS.find(([each]) => Math.abs(seconds) >= each * 1.5) ?? [1, "s"];
  const number = (Math.abs(seconds) / size).toFixed(size === 1 ? 0 : 1);
  return seconds < -1 ? `in ${number} ${unit}` : `${number} ${unit} ago`;
}

// Once for each element that is seen, as changes bring new ones.
function dressMessages() {
  for (const value of document.querySelectorAll("#main pre:is(.message, .command):not([data-dressed])")) {
    if (value.closest("details:not([open])") === null) dressMessage(value);
  }
}

function dressMessage(value) {
  value.dataset.dressed = "";
  if (value.classList.contains("json")) colour(value);
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = value.classList.contains("cut") ? "Copy what is shown" : "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(value.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(value);  // as browsers allow it only for safe addresses
      button.textContent = "Selected: copy it by the keyboard";
    }
  });
  value.before(button);
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null)\b|-?\d[\d.eE+-]*/g;

function colour(place) {
  const text = place.textContent, parts = [];
  let at = 0;
  for (const found of text.matchAll(TOKEN)) {
    const [whole, string, colon] = found, span = document.createElement("span");
    span.className = string === undefined ? "literal" : colon === undefined ? "string" : "field";
    span.textContent = string ?? whole;
    parts.push(text.slice(at, found.index), span, colon ?? "");
    at = found.index + whole.length;
  }
  place.replaceChildren(...parts, text.slice(at));
}
