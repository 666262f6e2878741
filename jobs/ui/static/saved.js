// Filters that a reader has saved under a name: kept by the browser, for each page its own; the server knows nothing of them.
"use strict";

const STORE = "sparkonce.filters";
const MAX_SAVED = 50;
const saved = document.getElementById("saved");
const savedList = saved.querySelector("ul");
const savedForm = saved.querySelector("form");

function searchForm() {
  return document.querySelector("#main form[role=search]");
}

function currentFilter() {
  const query = new URLSearchParams();
  for (const [name, value] of new FormData(searchForm())) if (value !== "") query.append(name, value);
  return query.toString();
}

// What is not as we write it, by an older version or by hand, counts as nothing; so does a store that the browser denies.
function readAll() {
  try {
    const found = JSON.parse(localStorage.getItem(STORE));
    return found !== null && typeof found === "object" && !Array.isArray(found) ? found : {};
  } catch { return {}; }
}

function readSaved() {
  const found = readAll()[location.pathname];
  return Array.isArray(found) ? found.filter((each) => typeof each?.name === "string" && typeof each.query === "string").slice(0, MAX_SAVED) : [];
}

function writeSaved(filters) {
  const all = readAll();
  if (filters.length) all[location.pathname] = filters;
  else delete all[location.pathname];
  try {
    localStorage.setItem(STORE, JSON.stringify(all));
  } catch {
    return say("This browser keeps nothing for these pages.");
  }
  say("");
  showSaved();
}

function say(text) {
  saved.querySelector("[role=status]").textContent = text;
}

function showSaved() {
  saved.hidden = searchForm() === null;
  if (saved.hidden) return;
  const current = currentFilter();
  savedList.replaceChildren(...readSaved().map((each) => savedItem(each, current)));
}

function savedItem({ name, query }, current) {
  const item = document.createElement("li"), link = document.createElement("a"), button = document.createElement("button");
  link.href = location.pathname + (query ? "?" + query : "");
  link.textContent = name;
  if (query === current) link.setAttribute("aria-current", "true");
  button.type = "button";
  button.textContent = "×";
  button.setAttribute("aria-label", "Forget " + name);
  button.addEventListener("click", () => {
    writeSaved(readSaved().filter((other) => other.name !== name));
    saved.querySelector("summary").focus();
  });
  item.append(link, button);
  return item;
}

savedForm.addEventListener("submit", (event) => {
  event.preventDefault();
  const field = savedForm.elements.as, name = field.value.trim();
  if (name === "" || searchForm() === null) return;
  const others = readSaved().filter((each) => each.name !== name);
  if (others.length >= MAX_SAVED) return say(`There are ${MAX_SAVED} filters for this page: forget one first.`);
  field.value = "";
  saved.querySelector("details").open = false;
  saved.querySelector("summary").focus();
  writeSaved([...others, { name, query: currentFilter() }]);
});

// The form of a page may come and go, and its fields change what is current.
new MutationObserver(showSaved).observe(document.getElementById("main"), { childList: true });
document.addEventListener("input", (event) => { if (event.target.closest("#main form[role=search]")) showSaved(); });
window.addEventListener("storage", showSaved);  // another tab saved one
showSaved();
