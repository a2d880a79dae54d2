// The review itself: which event is shown, what keys do, filters, progress.

const data = JSON.parse(document.getElementById("data").textContent);
const store = data.mode === "server" ? new ServerStore(data) : new FileStore(data);
const by = (id) => document.getElementById(id);
const chooser = new Chooser();
const PATIENCE = 150; // ms; a key pressed while a decision is being saved counts for the next event only that soon
const WIDE = matchMedia("(min-width: 48.01rem)");
const AHEAD = 6; // events whose details are asked for before they are shown

let list; // names, columns, frames, …: what is known of all rows
let entries = []; // decisions in the order in which they were made
let held = []; // row → the decision that holds
let order = []; // the rows that pass the filters, in the chosen order
let row = -1; // the one that is shown; -1 where all are done
let options = []; // the frames of the shown event that one key chooses
let busy = 0; // since when a decision is being saved
let loading = 0; // since when an event is being loaded
let asked = 0; // how often an event was asked for
let waiting = []; // keys pressed meanwhile
const cache = new Map(); // row → details

const number = (value) => value.toLocaleString("en");
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const name = (column, of) => (list[column][of] < 0 ? null : list.names[list[column][of]]);
const announce = (text) => { by("announce").textContent = text; };
const warn = (text) => { by("alert").textContent = text; };

// ---- rows ----

async function details(wanted) {
  const missing = wanted.filter((each) => !cache.has(each));
  if (missing.length) {
    const found = await store.details(missing);
    for (const each of missing) cache.set(each, found[each]);
    for (const old of cache.keys()) {
      if (cache.size <= 300) break;
      if (!wanted.includes(old)) cache.delete(old);
    }
  }
  return wanted.map((each) => cache.get(each));
}

function nextOpen(from) {
  const start = order.indexOf(from) + 1;
  for (let step = 0; step < order.length; step += 1) {
    const other = order[(start + step) % order.length];
    if (!held[other]) return other;
  }
  return -1;
}

async function show(wanted) {
  const request = (asked += 1);
  const since = performance.now();
  loading = loading || since; // nothing is decided about an event that is not on the screen yet
  try {
    const found = wanted < 0 ? [] : await retry(() => details([wanted]));
    if (request !== asked) return; // another was asked for meanwhile
    row = wanted;
    render(found[0]);
  } finally {
    if (request === asked) loading = 0;
  }
  drain();
}

function render(issue) {
  progress();
  if (row < 0) {
    finished();
    return;
  }
  options = optionsOf(issue);
  const place = order.indexOf(row);
  const position = place < 0 ? `row ${number(row + 1)}` : `${number(place + 1)} of ${number(order.length)}`;
  showEvent(issue, position, held[row], options, (frame) => decideFrame(frame));
  for (const button of document.querySelectorAll("#actions button")) button.disabled = false;
  document.querySelector("[data-action=accept]").disabled = issue.proposed === null;
  const soon = [];
  for (let at = nextOpen(row), seen = 0; at >= 0 && at !== row && seen < AHEAD; at = nextOpen(at), seen += 1) {
    if (soon.includes(at)) break;
    soon.push(at);
  }
  details([row, ...soon]).catch(() => {}); // asked for again when it is shown
}

function finished() {
  const shown = order.length < list.count;
  if (!order.length) {
    showFinished("No event passes these filters", make("p", { class: "quiet" }, "Press F to change them."));
    return;
  }
  const file = data.mode === "server" ? list.path : list.path.replace(/.*[\\/]/, "");
  const command = make("code", {}, `revup apply ${list.file || "FILE"} ${file} --out corrected.jsonl`);
  showFinished(shown ? "All events that pass the filters are decided" : "All events are decided",
    make("p", {}, `${summary()}.`),
    shown ? make("p", { class: "quiet" }, "Press F to change the filters.") : make("p", {}, "Write the corrected file with:", command),
    data.mode === "file" ? make("p", { class: "quiet" }, "Press E to export the decisions.") : null);
}

// ---- deciding ----

// Repeats what the server did not answer to, and says so.
async function retry(work) {
  for (let tries = 0; ; tries += 1) {
    try {
      const found = await work();
      if (tries) warn("");
      return found;
    } catch (problem) {
      if (problem.kind !== "away") throw problem;
      warn(`${problem.message} ${busy ? "This decision is not saved yet. " : ""}Start “revup review” again on the same port; this page goes on by itself.`);
      await pause(Math.min(2000, 250 * (tries + 1)));
    }
  }
}

async function saving(work) {
  busy = performance.now();
  try {
    await retry(work);
    warn("");
    return true;
  } catch (problem) {
    if (problem.kind === "stale") {
      await reload();
      warn("Another window decided meanwhile; its decisions are shown now. Decide again where this one differs.");
      await show(row >= 0 ? row : nextOpen(-1));
    } else {
      warn(`Not saved: ${problem.message}`);
    }
    waiting = [];
    return false;
  } finally {
    busy = 0;
  }
}

async function decide(decision, frame) {
  if (row < 0 || busy || loading) return;
  const decided = row;
  if (!(await saving(async () => { add(await store.decide(decided, decision, frame)); }))) return;
  const following = nextOpen(decided);
  await show(following);
  const what = decision === "skip" ? "Skipped" : decision === "keep" ? "Kept" : decision === "accept" ? "Accepted" : "Changed to";
  announce(`${what}${frame && decision !== "keep" ? ` ${frame}` : ""}. ${following < 0 ? "All done." : `Next: ${name("pred", following)}.`}`);
}

function decideFrame(frame) {
  const given = name("given", row);
  const proposed = name("proposed", row);
  return decide(frame === given ? "keep" : frame === proposed ? "accept" : "other", frame);
}

async function undo() {
  if (busy || loading) return;
  if (!entries.length) {
    announce("Nothing to undo.");
    return;
  }
  const last = entries[entries.length - 1];
  if (last.row < 0) {
    warn("The last decision is about an event that is not in this list.");
    return;
  }
  if (!(await saving(() => store.undo()))) return;
  entries.pop();
  holdAll();
  await show(last.row);
  announce(`Undone. ${name("pred", last.row)} again.`);
}

async function other() {
  if (row < 0 || busy || loading) return;
  const [issue] = await details([row]);
  const first = Object.create(null); // a frame may be called "constructor"
  for (const option of options) if (option.frame !== null) first[option.frame] = option.remark || percent(option.p);
  for (const entry of entries.slice(-30).reverse()) { // what was chosen lately is likely to come again
    if (entry.decision === "other" && entry.frame !== null && !(entry.frame in first)) first[entry.frame] = "chosen lately";
  }
  const chosen = await chooser.choose(list.frames, first);
  by("event").focus({ preventScroll: true });
  if (!chosen) return;
  if (issue === cache.get(row)) await decideFrame(chosen.frame);
}

function add(entry) {
  entries.push(entry);
  hold(entry);
}

function hold(entry) {
  if (entry.row >= 0) held[entry.row] = entry;
  if (entry.decision === "other" && entry.frame !== null && !list.frames.includes(entry.frame)) list.frames.push(entry.frame);
}

function holdAll() {
  held = [];
  entries.forEach(hold);
}

async function reload() {
  const found = await retry(() => store.list());
  entries = found.decisions.slice();
  holdAll();
}

// ---- keys ----

const KEYS = {
  a: "accept", k: "keep", x: "keep", o: "other", "/": "other", s: "skip", " ": "skip", u: "undo", backspace: "undo",
  arrowleft: "previous", arrowright: "next", n: "open", f: "filters", e: "export", "?": "help",
};

const ACTIONS = {
  accept: () => { if (row >= 0 && name("proposed", row) !== null) return decideFrame(name("proposed", row)); },
  keep: () => { if (row >= 0) return decide("keep", name("given", row)); },
  other,
  skip: () => decide("skip", null),
  undo,
  previous: () => step(-1),
  next: () => step(1),
  open: () => show(nextOpen(row)),
  filters: () => { by("filters").open = true; by("filter-frame").focus(); },
  export: exportDecisions,
  help: () => { by("help").showModal(); by("help-close").focus(); },
};

function step(by_) {
  if (!order.length) return undefined;
  const at = order.indexOf(row);
  return show(order[at < 0 ? 0 : Math.max(0, Math.min(order.length - 1, at + by_))]);
}

function act(action) {
  if (busy || loading) {
    if (performance.now() - (busy || loading) < PATIENCE) waiting.push(action);
    else announce("Saving the last decision.");
    return;
  }
  const button = document.querySelector(`[data-action=${action}]`);
  if (button) {
    button.classList.add("flash");
    setTimeout(() => button.classList.remove("flash"), 120);
  }
  Promise.resolve(ACTIONS[action]()).catch((problem) => warn(problem.message));
}

function drain() {
  if (waiting.length && !busy && !loading) act(waiting.shift());
}

// The key by its letter; by its place where the keyboard has other letters there, or digits only with Shift.
function pressed(event) {
  const place = /^(?:Key|Digit)(.)$/.exec(event.code);
  const foreign = event.key.length === 1 && event.key.charCodeAt(0) > 126;
  if (place && !event.shiftKey && (foreign || /^[1-9]$/.test(place[1]))) return place[1].toLowerCase();
  return event.key.toLowerCase();
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.isComposing || document.querySelector("dialog[open]")) return;
  const typing = event.target.closest("input:not([type=checkbox]):not([type=file]), select, textarea");
  if (typing) {
    if (event.key === "Escape" || (event.key === "Enter" && typing.matches("input"))) {
      event.preventDefault();
      typing.blur();
      by("event").focus({ preventScroll: true });
    }
    return;
  }
  const key = pressed(event);
  if ((event.ctrlKey || event.metaKey) && key === "z" && !event.shiftKey) {
    event.preventDefault();
    act("undo");
  }
  if (event.ctrlKey || event.metaKey || event.altKey || !by("single-keys").checked) return;
  if ((key === " " || key === "enter") && event.target.closest("button, summary, label, a")) return; // presses that
  if (/^[1-9]$/.test(key)) {
    const option = options.find((each) => each.key === key);
    if (option && !event.repeat) decideFrame(option.frame);
    return;
  }
  const action = KEYS[key];
  if (!action || (action === "export" && data.mode !== "file")) return;
  event.preventDefault();
  const moves = action === "previous" || action === "next";
  if (!event.repeat || moves) act(action); // holding a key down decides once
});

// ---- files ----

function exportDecisions() {
  if (data.mode !== "file") return;
  const link = make("a", { download: list.path, href: URL.createObjectURL(new Blob(store.lines(), { type: "application/jsonl" })) });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  store.exported = true;
  announce(`${entries.length} decisions exported to ${list.path}.`);
}

async function importDecisions(event) {
  const [file] = event.target.files;
  if (!file) return;
  try {
    const count = store.add(await file.text());
    await reload();
    await filterAndShow();
    warn("");
    announce(`${count} decisions imported.`);
  } catch (problem) {
    warn(`${file.name}: ${problem.message}`);
  }
  event.target.value = "";
}

// ---- start ----

async function start() {
  for (const button of document.querySelectorAll("#actions button")) {
    button.disabled = button.dataset.action !== "undo";
    button.addEventListener("click", () => act(button.dataset.action));
  }
  by("help-button").addEventListener("click", () => act("help"));
  by("single-keys").checked = read("revup-single-keys") !== "off";
  by("single-keys").addEventListener("change", () => {
    try { localStorage.setItem("revup-single-keys", by("single-keys").checked ? "on" : "off"); } catch { /* until reload */ }
  });
  by("help").addEventListener("close", () => by("event").focus({ preventScroll: true }));
  list = await retry(() => store.list());
  entries = list.decisions.slice();
  holdAll();
  by("title").textContent = [list.title, list.file].filter(Boolean).join(" · ");
  if (data.mode === "file") {
    by("files").hidden = false;
    by("export").addEventListener("click", exportDecisions);
    by("import").addEventListener("change", importDecisions);
  } else {
    for (const line of document.querySelectorAll(".file-only")) line.remove();
  }
  const fold = () => { by("history-box").open = WIDE.matches; };
  WIDE.addEventListener("change", fold);
  fold();
  fillFilters();
  by("filter-form").addEventListener("change", () => filterAndShow());
  by("filter-form").addEventListener("submit", (event) => event.preventDefault());
  by("filter-form").addEventListener("reset", () => setTimeout(filterAndShow));
  await filterAndShow();
  document.documentElement.dataset.ready = "yes";
}

function read(key) {
  try { return localStorage.getItem(key); } catch { return null; }
}

start().catch((problem) => warn(problem.message));
