// Keeps a page of Watchkeeper up to date. The page is complete without this script: it only puts newer rows in the place of older
// ones, which the server has written and escaped. Nothing here makes markup of data.
//
// html[data-live]: "stream" follows /events, "poll" asks for the page again, "off" is left alone.
// table[data-part] > tbody > tr[data-key]: a row is replaced by its key, unless a person is at it. [data-piece]: the same for other
// elements. time.rel, time.for, time.left: counted on between two answers.

const POLL_MS = 5000;
const RETRY_MS = 30000;
const HIDDEN_MS = 10000;
const ASKED = "up to date, asked for every 5 s";

// Markup comes from our own server alone; browsers with trusted types let nothing else through.
const rules = { createHTML: (html) => html };
const policy = window.trustedTypes
  ? window.trustedTypes.createPolicy("watchkeeper", rules)
  : rules;

const mode = document.documentElement.dataset.live;
const status = document.getElementById("live");
const arrived = new WeakMap();

let paused = false;
let source = null;
let giveUpLock = null;
let pollTimer = null;
let hiddenTimer = null;
let retryTimer = null;
let version = null;
let aheadMs = 0;

// === patching ===

function parsed(html) {
  const template = document.createElement("template");
  template.innerHTML = policy.createHTML(html);
  return template.content;
}

function isBusy(element) {
  if (element.contains(document.activeElement)) return true;
  const selection = document.getSelection();
  return (
    selection !== null &&
    !selection.isCollapsed &&
    (element.contains(selection.anchorNode) || element.contains(selection.focusNode))
  );
}

function note(element) {
  const now = performance.now();
  for (const left of element.querySelectorAll("time.left")) arrived.set(left, now);
}

function bodyOf(part) {
  for (const table of document.querySelectorAll("table[data-part]")) {
    if (table.dataset.part === part) return table.tBodies[0] ?? null;
  }
  return null;
}

function rowsByKey(body) {
  const rows = new Map();
  for (const row of body.rows) rows.set(row.dataset.key ?? "", row);
  return rows;
}

// Puts these rows in the place of those with their keys; new ones go to the end.
function patchRows(part, rows) {
  const body = bodyOf(part);
  if (body === null) return;
  const known = rowsByKey(body);
  for (const row of rows) {
    const old = known.get(row.dataset.key ?? "");
    if (old === undefined) {
      body.append(row);
      note(row);
    } else if (!isBusy(old) && old.innerHTML !== row.innerHTML) {
      old.replaceWith(row);
      note(row);
    }
  }
}

// Brings the rows into this order, and takes away what is not in it.
function patchOrder(part, keys) {
  const body = bodyOf(part);
  if (body === null) return;
  const known = rowsByKey(body);
  let place = body.firstElementChild;
  for (const key of keys) {
    const row = known.get(key);
    if (row === undefined) continue;
    known.delete(key);
    if (row === place) {
      place = place.nextElementSibling;
    } else if (!isBusy(row)) {
      // A row that is moved would lose its focus.
      body.insertBefore(row, place);
    }
  }
  for (const row of known.values()) if (!isBusy(row)) row.remove();
}

function patchPiece(piece) {
  for (const old of document.querySelectorAll("[data-piece]")) {
    if (old.dataset.piece === piece.dataset.piece && !isBusy(old)) {
      old.replaceWith(piece);
      note(piece);
      // The others come without the strip, whose time is of before then.
      if (piece.id === "strip") setClock();
      return;
    }
  }
}

function partsOf(root) {
  return [...root.querySelectorAll("table[data-part]")].map((table) => table.dataset.part).join(" ");
}

// Whether the page could be patched.
function patchPage(html) {
  const page = parsed(html);
  // A table in the place of the reason why there is none, or the other way round.
  if (partsOf(page) !== partsOf(document)) {
    const main = document.getElementById("main");
    if (main === null || !isBusy(main)) location.reload();
    return false;
  }
  for (const table of page.querySelectorAll("table[data-part]")) {
    const rows = [...(table.tBodies[0]?.rows ?? [])];
    const keys = rows.map((row) => row.dataset.key ?? "");
    patchRows(table.dataset.part, rows);
    patchOrder(table.dataset.part, keys);
  }
  for (const piece of page.querySelectorAll("[data-piece]")) patchPiece(piece);
  return true;
}

// === times ===

// The clock of the fleet, and not this machine's, says how long ago something was.
function setClock() {
  const shown = document.querySelector("#strip time.now");
  const at = shown === null ? NaN : Date.parse(shown.dateTime);
  if (!Number.isNaN(at)) aheadMs = at - Date.now();
}

function span(ms) {
  const s = Math.floor(ms / 1000);
  if (s < 120) return `${s} s`;
  if (s < 7200) return `${Math.floor(s / 60)} min`;
  if (s < 172800) return `${Math.floor(s / 3600)} h`;
  return `${Math.floor(s / 86400)} d`;
}

function count() {
  if (document.hidden || paused) return;
  const now = Date.now() + aheadMs;
  for (const time of document.querySelectorAll("time.rel, time.for")) {
    const at = Date.parse(time.dateTime);
    if (Number.isNaN(at)) continue;
    const ms = Math.abs(now - at);
    let text = span(ms);
    if (time.className === "rel") text = ms < 1000 ? "now" : at > now ? `in ${text}` : `${text} ago`;
    if (time.textContent !== text) time.textContent = text;
  }
  const here = performance.now();
  for (const left of document.querySelectorAll("time.left")) {
    const since = here - (arrived.get(left) ?? here);
    const text = span(Math.max(0, Number(left.dataset.left) - since));
    if (left.textContent !== text) left.textContent = text;
  }
}

// === following ===

function say(text, state = "") {
  if (status === null) return;
  status.className = state;
  if (status.textContent !== text) status.textContent = text;
}

function streamAddress() {
  const query = new URLSearchParams(location.search);
  query.set("path", location.pathname);
  return `/events?${query}`;
}

function stopStream() {
  if (source !== null) source.close();
  source = null;
  if (giveUpLock !== null) giveUpLock();
  giveUpLock = null;
}

function stopPolling() {
  clearTimeout(pollTimer);
  pollTimer = null;
}

function stop() {
  stopStream();
  stopPolling();
}

async function poll() {
  stopPolling();
  if (paused || document.hidden || source !== null) return;
  try {
    // Not location.href, which may hold a password.
    const page = location.origin + location.pathname + location.search;
    const answer = await fetch(page, { cache: "no-store", redirect: "error" });
    if (!answer.ok) throw new Error(String(answer.status));
    const isPatched = patchPage(await answer.text());
    if (isPatched) say(ASKED, "good");
    else say("this page has other parts now: load it again", "warn");
  } catch {
    say("the page cannot be reached; it is asked for again", "bad");
  }
  if (!paused && !document.hidden && source === null && pollTimer === null) {
    pollTimer = setTimeout(poll, POLL_MS);
  }
}

function retry() {
  clearTimeout(retryTimer);
  retryTimer = setTimeout(start, RETRY_MS);
}

// One stream for each browser: a seventh connection to one host would wait for ever. Who does not get the lock asks again and again,
// and so does every tab where there are no locks, which browsers have for https and this machine alone.
function startStream() {
  const open = () => {
    // It may have been asked for twice.
    if (paused || document.hidden || source !== null) return undefined;
    openStream();
    return new Promise((resolve) => {
      giveUpLock = resolve;
    });
  };
  navigator.locks.request("watchkeeper-stream", { ifAvailable: true }, (lock) => {
    if (lock !== null) return open();
    poll();
    retry();
    return undefined;
  });
}

function openStream() {
  stopPolling();
  source = new EventSource(streamAddress());
  source.addEventListener("hello", (event) => {
    const hello = JSON.parse(event.data);
    if (version !== null && version !== hello.version) location.reload();
    version = hello.version;
    say("up to date, as it happens", "good");
  });
  source.addEventListener("parts", (event) => {
    // A table where there was none, or the other way round: rows alone do not make it.
    const main = document.getElementById("main");
    if (event.data !== partsOf(document) && (main === null || !isBusy(main))) location.reload();
  });
  source.addEventListener("rows", (event) => {
    const table = parsed(event.data).querySelector("table[data-part]");
    if (table !== null) patchRows(table.dataset.part, [...table.tBodies[0].rows]);
  });
  source.addEventListener("order", (event) => {
    for (const [part, keys] of Object.entries(JSON.parse(event.data))) patchOrder(part, keys);
  });
  source.addEventListener("piece", (event) => {
    const piece = parsed(event.data).querySelector("[data-piece]");
    if (piece !== null) patchPiece(piece);
  });
  source.addEventListener("error", () => {
    say("the stream has ended; it begins again", "warn");
    // A browser goes on by itself, unless it was refused.
    if (source !== null && source.readyState === EventSource.CLOSED) {
      stopStream();
      poll();
      retry();
    }
  });
}

function start() {
  if (paused || document.hidden || source !== null) return;
  if (mode === "stream" && "EventSource" in window && navigator.locks) startStream();
  else if (pollTimer === null) {
    say(ASKED, "good");
    pollTimer = setTimeout(poll, POLL_MS);
  }
}

// === people ===

function toggle(button) {
  paused = !paused;
  button.setAttribute("aria-pressed", String(paused));
  if (paused) {
    stop();
    say("frozen: nothing on this page changes", "warn");
  } else {
    say("");
    poll().then(start);
  }
}

function addControls() {
  const place = document.querySelector("header .tools");
  if (place === null) return null;
  const pause = document.createElement("button");
  pause.type = "button";
  pause.textContent = "Freeze";
  pause.setAttribute("aria-pressed", "false");
  pause.addEventListener("click", () => toggle(pause));
  const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
  const here = document.createElement("a");
  const query = new URLSearchParams(location.search);
  place.append(pause);
  document.querySelector("footer p")?.append(" · keys: / search, p freeze");
  if ((query.get("tz") ?? "UTC") === zone) return pause;
  query.set("tz", zone);
  here.href = `${location.pathname}?${query}`;
  here.textContent = `times of ${zone}`;
  place.append(here);
  return pause;
}

function onKey(event, pause) {
  if (event.ctrlKey || event.altKey || event.metaKey) return;
  if (event.target instanceof Element && event.target.closest("input, textarea, select")) return;
  if (event.key === "/") {
    const search = document.querySelector("form[role=search] input");
    if (search === null) return;
    event.preventDefault();
    search.focus();
  } else if (event.key === "p" && pause !== null) {
    toggle(pause);
  }
}

function onVisibility() {
  clearTimeout(hiddenTimer);
  if (document.hidden) {
    hiddenTimer = setTimeout(stop, HIDDEN_MS);
  } else if (!paused) {
    poll().then(start);
  }
}

for (const part of document.querySelectorAll("details.folds")) part.open = false;

if (mode === "stream" || mode === "poll") {
  note(document.body);
  setClock();
  const pause = addControls();
  document.addEventListener("keydown", (event) => onKey(event, pause));
  document.addEventListener("visibilitychange", onVisibility);
  window.addEventListener("pagehide", stop);
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) onVisibility();
  });
  setInterval(count, 1000);
  start();
}
