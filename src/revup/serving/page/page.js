// The page: asks the server, keeps what the user changed, and shows the story.

import { Refused, ask, curl, hasToken, useToken } from "./api.js";
import { $, copy, el } from "./dom.js";
import { EXAMPLE_EVENTS, EXAMPLE_TEXT, parseDocuments } from "./input.js";
import { Memory } from "./nearest.js";
import { keyOf, timeline } from "./timeline.js";

const TOP = 10; // frames that are asked for, more than are shown, to know what changed

const HINTS = {
  text: "A text in English. Blank lines separate paragraphs.",
  events: "One event a line: predicate | subject | object | modifier. Or JSON: a document, a list of events, JSON Lines.",
};

let info = null;
let story = null; // {number, model, given, base, documents, pins, open}
let stories = 0;
let asked = 0;
const memory = new Memory();
const drafts = { text: "", events: "" };

// ---- asking ---------------------------------------------------------------------------------------------------

const kind = () => ($("kind-text").checked ? "text" : "events");
const modelName = () => $("model").value || info?.default;

function options() {
  const model = info?.models[modelName()];
  return {
    ...(info && modelName() !== info.default ? { model: modelName() } : {}),
    ...(model?.explains ? { explain: true } : {}),
  };
}

async function label() {
  const number = ++asked;
  let body;
  try {
    body = kind() === "text" ? { text: $("input").value } : { documents: parseDocuments($("input").value) };
  } catch (error) {
    return complain(error.message);
  }
  await working(async () => {
    const answer = await ask("/predict", { ...body, top: TOP, ...options() });
    if (number !== asked) return;
    const given = answer.documents.map(withoutPredictions);
    story = {
      number: ++stories, model: modelName(), given, body, base: answer.documents, documents: answer.documents,
      pins: new Map(), open: new Set(),
    };
    story.nearest = (d, i) => memory
      .nearest(story.number, given[d].id, i)
      .map((item) => ({ ...item, here: item.story === story.number && given.length === 1 }));
    show();
    const frames = answer.documents.reduce((sum, document) => sum + document.events.length, 0);
    say(`${frames} events labelled.`);
    await remember(story);
  });
}

// The documents as they were found, so that a text is not parsed again when a frame is changed.
function withoutPredictions(document) {
  const events = document.events.map(({ predicted, explain, known, ...event }) => event);
  return { ...document, events };
}

async function remember(current) {
  const model = current.model === info?.default ? {} : { model: current.model };
  const { vectors } = await ask("/embed", { documents: current.given, ...model });
  memory.add(current.base, vectors.events, current.number, current.model);
  if (current === story) show();
}

// The request whose answer is shown: with the frames that the user chose as the only labels.
function request() {
  if (!story.pins.size) return { ...story.body, top: TOP, ...options() };
  const documents = story.given.map((document, d) => ({
    ...document,
    events: document.events.map(({ frame, frames, candidates, sources, ...event }, i) => {
      const pinned = story.pins.get(keyOf(d, i));
      return pinned === undefined ? event : { ...event, frame: pinned };
    }),
  }));
  return { documents, revise: true, top: TOP, ...options() };
}

async function choose(d, i, frame) {
  const key = keyOf(d, i), known = info?.models[story.model]?.frames;
  if (frame && known && !known.includes(frame)) return complain(`The model has no frame ${frame}.`);
  if (frame) story.pins.set(key, frame);
  else if (!story.pins.delete(key)) return;
  const number = ++asked, current = story;
  await working(async () => {
    const answer = current.pins.size ? await ask("/predict", request()) : { documents: current.base };
    if (number !== asked) return;
    current.documents = answer.documents;
    show();
    const moved = document.querySelectorAll(".moved").length;
    say(frame
      ? `Event ${i + 1} is set to ${frame}. ${moved === 1 ? "One other event has" : `${moved} other events have`} another frame now.`
      : `The frame of event ${i + 1} is removed.`);
  });
}

async function working(work) {
  $("story").setAttribute("aria-busy", "true");
  $("send").disabled = true;
  try {
    complain("");
    await work();
  } catch (error) {
    if (error instanceof Refused && error.status === 401) needToken();
    complain(error.message);
  } finally {
    $("story").setAttribute("aria-busy", "false");
    $("send").disabled = false;
  }
}

// ---- showing --------------------------------------------------------------------------------------------------

const complain = (text) => { $("alert").textContent = text; };
const say = (text) => { $("status").textContent = text; };

function show() {
  const focused = document.activeElement?.closest?.(".event")?.dataset.key;
  $("timeline").replaceChildren(...(story ? timeline(story, { choose, toggle }) : []));
  $("empty").hidden = story !== null;
  $("tools").hidden = story === null;
  $("undo").hidden = !story?.pins.size;
  if (story) {
    const events = story.documents.reduce((sum, item) => sum + item.events.length, 0);
    const changed = story.pins.size ? `, ${story.pins.size} with a frame set by you` : "";
    $("summary").textContent = `${events} event${events === 1 ? "" : "s"}${changed}`;
  }
  if (focused) cardOf(focused)?.focus();
}

const cardOf = (key) => document.querySelector(`.event[data-key="${key}"]`);

function toggle(d, i) {
  const key = keyOf(d, i);
  if (!story.open.delete(key)) story.open.add(key);
  show();
  cardOf(key)?.querySelector(".more")?.focus();
}

function chooseKind(name) {
  $(name === "text" ? "kind-text" : "kind-events").checked = true;
  $("hint").textContent = HINTS[name];
  $("input-label").textContent = name === "text" ? "Text" : "Events";
  $("input").classList.toggle("code", name === "events");
  $("input").value = drafts[name];
}

function needToken() {
  $("token-box").hidden = false;
  $("token").focus();
}

async function loadInfo() {
  try {
    info = await ask("/info");
  } catch (error) {
    if (error.status === 401) return needToken();
    if (error.status === 503) {
      $("about").textContent = error.message;
      setTimeout(loadInfo, 1000);
      return;
    }
    return complain(error.message);
  }
  const names = Object.keys(info.models);
  $("model").replaceChildren(...names.map((name) => el("option", { value: name }, name)));
  $("model").value = info.default;
  $("model-box").hidden = names.length < 2;
  $("kind-text").disabled = !info.text;
  $("kind-text").parentElement.title = info.text ? "" : "The server was started without --spacy-model";
  if (info.text && !drafts.events) chooseKind("text");
  describeModel();
}

function describeModel() {
  const model = info.models[modelName()];
  $("about").textContent = `${modelName()}: ${model.model}, ${model.frames.length} frames, ${model.words} words`;
  $("frames").replaceChildren(...model.frames.map((frame) => el("option", { value: frame })));
}

// ---- keys and buttons -----------------------------------------------------------------------------------------

function onKey(event) {
  const typing = event.target.closest("input, textarea, select");
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    label();
  } else if (event.key === "?" && !typing) {
    $("help").showModal();
  } else if (!typing && !event.ctrlKey && !event.metaKey && !event.altKey) {
    onEventKey(event);
  }
}

function onEventKey(event) {
  const current = event.target.closest(".event");
  if (!current) return;
  const cards = [...document.querySelectorAll(".event")];
  const { d, i } = current.dataset;
  const at = cards.indexOf(current);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: cards.length - 1 }[event.key];
  if (next !== undefined) {
    event.preventDefault();
    cards[Math.max(0, Math.min(cards.length - 1, next))].focus();
  } else if (event.key === "Enter" && event.target === current) {
    toggle(Number(d), Number(i));
    cardOf(current.dataset.key)?.focus();
  } else if (event.key === "0") {
    choose(Number(d), Number(i), null);
  } else if (/^[1-5]$/.test(event.key)) {
    const frame = story.documents[d].events[i].predicted?.[event.key - 1]?.frame;
    if (frame) choose(Number(d), Number(i), frame);
  }
}

async function copied(button, text) {
  try {
    await copy(text);
    say("Copied.");
    const before = button.textContent;
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = before; }, 1200);
  } catch (error) {
    complain(error.message);
  }
}

$("form").addEventListener("submit", (event) => { event.preventDefault(); label(); });
$("input").addEventListener("input", () => { drafts[kind()] = $("input").value; });
$("kinds").addEventListener("change", () => chooseKind(kind()));
$("example").addEventListener("click", () => {
  drafts[kind()] = kind() === "text" ? EXAMPLE_TEXT : EXAMPLE_EVENTS;
  chooseKind(kind());
  label();
});
$("clear").addEventListener("click", () => {
  drafts[kind()] = "";
  $("input").value = "";
  story = null;
  complain("");
  show();
  $("input").focus();
});
$("undo").addEventListener("click", () => {
  asked++;
  story.pins.clear();
  story.documents = story.base;
  show();
  say("Your frames are removed.");
});
$("copy-json").addEventListener("click", (event) => copied(event.target, JSON.stringify({ documents: story.documents }, null, 2)));
$("copy-curl").addEventListener("click", (event) => copied(event.target, curl("/predict", request())));
$("help-button").addEventListener("click", () => $("help").showModal());
$("model").addEventListener("change", () => { describeModel(); if (story) label(); });
$("token").addEventListener("change", () => {
  useToken($("token").value);
  complain("");
  if (hasToken()) loadInfo();
});
document.addEventListener("keydown", onKey);
document.addEventListener("focusin", (event) => {
  const current = event.target.closest(".event");
  if (current) for (const card of document.querySelectorAll(".event")) card.tabIndex = card === current ? 0 : -1;
});
chooseKind("events");
loadInfo();
