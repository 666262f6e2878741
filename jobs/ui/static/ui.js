// Keeps a page as the server has it: parts of it are replaced as they change. Without this script the page is reloaded.
"use strict";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
const LIVE = "live";
let stream = null;
let address = location.pathname + location.search;

function follow(has) {
  leave();
  stream = new EventSource(address + (address.includes("?") ? "&" : "?") + "live=" + encodeURIComponent(has));
  stream.addEventListener("open", showHeld);
  stream.addEventListener("error", () => show(stream.readyState === EventSource.CLOSED ? "stopped: reload the page" : "disconnected, trying again"));
  stream.addEventListener("parts", (event) => soon(() => arrived({ ...held, parts: { ...held?.parts, ...JSON.parse(event.data) }, digest: event.lastEventId })));
  stream.addEventListener("whole", (event) => soon(() => arrived({ whole: JSON.parse(event.data), parts: {}, digest: event.lastEventId })));
}

function leave() {
  if (stream !== null) stream.close();
  later = [];
  held = null;  // what follows again is sent it again
  stream = null;
}

// What the server cannot read it marks as old: the page then follows the server, and not what it is about.
function show(state) {
  if (state === LIVE && main.querySelector("[data-stale]") !== null) state = "out of date";
  if (connection.textContent !== state) connection.textContent = state;  // it is read aloud
  connection.className = state === LIVE ? "good" : state.startsWith("paused") ? "soft" : "bad";
}

// What somebody reads stands still: while a message is open, text is selected, or after "Pause", changes are held, and new
// messages counted.
let held = null, paused = false;

function isReading() {
  return paused || isSelecting() || main.querySelector("tbody details[open]") !== null;
}

function isSelecting() {
  const selection = getSelection();
  return selection !== null && !selection.isCollapsed && main.contains(selection.anchorNode);
}

let selecting = false;
document.addEventListener("selectionchange", () => {
  if (isSelecting() === selecting) return;
  selecting = !selecting;
  soon(() => isReading() ? showHeld() : release());
});

function arrived(change) {
  held = change;
  if (!isReading()) release();
  else if (showHeld()) {
    stream.close();  // nothing more is to be counted
    stream = null;
  }
}

function release() {
  const { whole, parts, digest } = held ?? {};
  held = null;
  if (whole !== undefined) replaceWhole(whole);
  if (parts !== undefined) replaceParts(parts);
  if (digest !== undefined) main.dataset.digest = digest;
  if (stream === null && "follows" in main.dataset && !document.hidden) follow(main.dataset.digest);
  showHeld();
}

// Counts what waits, and says so; returns whether all messages that would be shown are new.
function showHeld() {
  const reading = isReading(), next = held?.whole === undefined ? null : parsed(held.whole);
  const names = next === null ? [] : [...next.querySelectorAll("tbody details[id]")].map((each) => each.id);
  const added = names.filter((name) => document.getElementById(name) === null).length, all = added > 0 && added === names.length;
  const lost = next !== null && (names.length === 0 || next.querySelector("[data-stale]") !== null);
  const button = document.getElementById("pause"), counted = added && reading ? `: ${added}${all ? " or more" : ""} new` : "";
  if (button !== null) {
    button.hidden = false;
    button.textContent = reading ? "Go on" + counted : "Pause";
  }
  if (stream?.readyState === EventSource.OPEN) show(!reading ? LIVE : lost ? "paused, out of date" : "paused");
  return all;
}

main.addEventListener("click", (event) => {
  if (event.target.id !== "pause") return;
  const reading = isReading();
  for (const each of main.querySelectorAll("tbody details[open]")) each.open = false;
  paused = !reading;
  if (reading) release();
  else showHeld();
});

document.addEventListener("toggle", (event) => {
  if (!event.target.matches("tbody details")) return;
  dressMessages();
  if (isReading()) showHeld();
  else release();
}, true);

// Elements are parsed in a template, where a row of a table may stand alone.
function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = html;
  return template.content;
}

// What changes while a button is held down waits: a click on something that was replaced would be lost.
let pressed = false;
let later = [];
document.addEventListener("pointerdown", () => { pressed = true; });
for (const end of ["pointerup", "pointercancel", "blur"]) {
  window.addEventListener(end, () => setTimeout(() => {
    pressed = false;
    for (const change of later.splice(0)) change();
  }));
}

function soon(change) {
  if (pressed) later.push(change);
  else change();
}

function replaceParts(parts) {
  for (const [id, html] of Object.entries(parts)) {
    const old = document.getElementById(id);
    if (old === null) continue;
    const place = focusIn(old), scrolled = scrollsIn(old);
    old.replaceWith(parsed(html));
    scrollAgain(document.getElementById(id), scrolled);
    focusAgain(document.getElementById(id), place);
  }
  dress();
}

function scrollsIn(element) {
  return [...element.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]);
}

function scrollAgain(element, scrolled) {
  element?.querySelectorAll(".scroll").forEach((each, at) => { if (scrolled[at]) [each.scrollLeft, each.scrollTop] = scrolled[at]; });
}

function replaceWhole(html) {
  const place = focusIn(main);
  const typed = [...main.querySelectorAll("input[id], select[id], textarea[id]")].filter(isTyped).map((each) => [each.id, each.value, each.checked]);
  const opened = [...main.querySelectorAll("details[id][open]")].map((each) => each.id);
  const scrolled = scrollsIn(main);
  main.replaceChildren(parsed(html));
  dress();
  for (const [id, value, checked] of typed) {
    const field = document.getElementById(id);
    if (field === null) continue;
    if (field.type === "checkbox" || field.type === "radio") field.checked = checked;
    else field.value = value;
  }
  for (const id of opened) document.getElementById(id)?.setAttribute("open", "");
  scrollAgain(main, scrolled);
  focusAgain(main, place);
}

// Every table sorts by the heading that is clicked, and stays sorted as its rows change; a third click restores the server's order.
const sorted = new Map();
const collator = new Intl.Collator(undefined, { numeric: true });

function dress() {
  showHeld();
  showTimes();
  for (const table of main.querySelectorAll(".scroll > table")) {
    const heads = [...table.querySelectorAll("thead th")];
    heads.forEach((head, column) => { if (head.firstElementChild === null && head.textContent !== "") addSorting(table, head, column); });
    if (table.parentElement.classList.contains("cards")) {
      for (const row of table.tBodies[0].rows) [...row.cells].forEach((cell, at) => { if (row.cells.length === heads.length) cell.dataset.label = heads[at].textContent; });
    }
    const by = sorted.get(nameOf(table));
    if (by !== undefined) sort(table, by);
  }
  dressMessages();
}

function nameOf(table) {
  return location.pathname + " " + table.parentElement.getAttribute("aria-label");
}

function addSorting(table, head, column) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "sort";
  button.textContent = head.textContent;
  button.addEventListener("click", () => {
    const name = nameOf(table), by = sorted.get(name);
    if (by?.column !== column) sorted.set(name, { column, down: head.classList.contains("number") });
    else if (by.down === head.classList.contains("number")) sorted.set(name, { column, down: !by.down });
    else sorted.delete(name);
    if (sorted.has(name)) sort(table, sorted.get(name));
    else if (stream !== null && !isReading()) follow("");  // the server's order
    else location.reload();
  });
  head.replaceChildren(button);
}

function sort(table, { column, down }) {
  table.querySelectorAll("thead th").forEach((head, at) => {
    if (at === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  const rows = [...table.tBodies[0].rows].filter((row) => row.cells.length > column);
  const ordered = [...rows].sort((a, b) => (down ? -1 : 1) * compare(valueOf(a.cells[column]), valueOf(b.cells[column])));
  if (ordered.some((row, at) => row !== rows[at])) table.tBodies[0].append(...ordered);
}

function compare(one, other) {
  const both = [one, other].map((text) => text === "" ? NaN : Number(text));
  return both.some(Number.isNaN) ? collator.compare(one, other) : both[0] - both[1];
}

// Digits are grouped by narrow spaces. Sizes and durations say in data-sort what they are.
function valueOf(cell) {
  return (cell.dataset.sort ?? cell.textContent).trim().replaceAll("\u202f", "");
}

function isTyped(field) {
  if (field === document.activeElement) return true;
  if (field.type === "checkbox" || field.type === "radio") return field.checked !== field.defaultChecked;
  if (field.tagName === "SELECT") return [...field.options].some((each) => each.selected !== each.defaultSelected);
  return field.value !== field.defaultValue;
}

const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";

function focusIn(element) {
  const active = document.activeElement;
  if (active === null || active === element || !element.contains(active)) return null;
  return { id: active.id, at: [...element.querySelectorAll(FOCUSABLE)].indexOf(active), start: active.selectionStart, end: active.selectionEnd };
}

function focusAgain(element, place) {
  if (place === null || element === null) return;
  const found = place.id ? document.getElementById(place.id) : element.querySelectorAll(FOCUSABLE)[place.at];
  if (!found) return;
  found.focus({ preventScroll: true });
  if (typeof place.start === "number" && found.setSelectionRange) {
    try { found.setSelectionRange(place.start, place.end); } catch { /* not a field of text */ }
  }
}

// A form that only asks is sent as it is typed, without a new page.
let waiting = null;
document.addEventListener("input", (event) => {
  const form = event.target.closest("form[data-follow]");
  if (form === null) return;
  clearTimeout(waiting);
  waiting = setTimeout(() => ask(form), 250);
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-follow]")) return;
  event.preventDefault();
  clearTimeout(waiting);
  ask(event.target);
});

function ask(form) {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(form)) if (value !== "") query.append(name, value);
  address = location.pathname + (query.size ? "?" + query : "");
  history.replaceState(null, "", address);
  follow("");
}

// A page that nobody sees is not followed: browsers allow few streams to one server.
document.addEventListener("visibilitychange", () => {
  if (!("follows" in main.dataset)) return;
  if (document.hidden) leave();
  else if (stream === null) follow(main.dataset.digest);
});
if ("follows" in main.dataset && !document.hidden) follow(main.dataset.digest);
dress();
