// The story as a list of events, each with its frames, what changed, and details on demand.

import { bar, el, percent } from "./dom.js";

const SHOWN = 3; // frames without opening the details
const MOST = 5; // frames with them; keys 1 to 5 choose one
const EXPLAINED = [
  // keys of an event's `explain`, with what they are called here
  ["lexicon", "The dictionary says"],
  ["counts", "The counts say"],
  ["context", "The context changes"],
];

export const keyOf = (document, index) => `${document}/${index}`;

export function sentence(event) {
  const parts = [];
  if (event.subj) parts.push(`${event.subj} `);
  parts.push(el("strong", {}, event.pred));
  if (event.obj) parts.push(` ${event.obj}`);
  if (event.mod) parts.push(el("span", { className: "mod" }, ` ${event.mod} …`));
  return parts;
}

export const plain = (event) => [event.subj, event.pred, event.obj, event.mod].filter(Boolean).join(" ");

// `story`: {documents, base, pins, open, nearest}; `act`: {choose(d, i, frame), toggle(d, i)}
export function timeline(story, act) {
  return story.documents.map((document, d) =>
    el("section", { className: "document", "aria-label": `Document ${document.id}` },
      story.documents.length > 1 ? el("h2", {}, document.id) : null,
      el("ol", { className: "events" }, document.events.map((event, i) => card(story, act, d, i, event)))));
}

function card(story, act, d, i, event) {
  const key = keyOf(d, i);
  const pinned = story.pins.get(key);
  const before = story.base[d].events[i].predicted ?? [];
  const open = story.open.has(key);
  const found = event.predicted ?? [];
  const moved = pinned === undefined && found[0] && before[0] && found[0].frame !== before[0].frame;
  const name = `title-${key}`;
  return el("li", { className: [pinned !== undefined && "pinned", moved && "moved"].filter(Boolean).join(" ") },
    el("span", { className: "number", "aria-hidden": "true" }, String(i + 1)),
    el("article", { className: "event", tabIndex: d + i === 0 ? 0 : -1, "aria-labelledby": name, data: { key, d, i } },
      el("div", { className: "head" },
        el("h3", { id: name }, el("span", { className: "unseen" }, `Event ${i + 1}: `), sentence(event)),
        el("button", {
          type: "button", className: "more", "aria-expanded": String(open), "aria-controls": `details-${key}`,
          on: { click: () => act.toggle(d, i) },
        }, open ? "Less" : "More", el("span", { className: "unseen" }, ` about event ${i + 1}`))),
      event.text ? el("p", { className: "said quiet" }, event.text) : null,
      pinned === undefined ? null : pinLine(act, d, i, pinned),
      found.length
        ? el("ol", { className: "options", "aria-label": "Most probable frames" },
            found.slice(0, open ? MOST : SHOWN).map((item, rank) => option(act, d, i, item, rank, before, pinned)))
        : el("p", { className: "none quiet" }, "This model predicts no frame here."),
      moved ? el("p", { className: "quiet" }, `was ${before[0].frame} ${percent(before[0].probability)}`) : null,
      event.known === false ? el("p", { className: "quiet" }, "The model does not know this predicate.") : null,
      open ? details(story, act, d, i, event, key) : null));
}

function pinLine(act, d, i, frame) {
  return el("p", { className: "pin" }, `Set by you: ${frame}`,
    el("button", { type: "button", on: { click: () => act.choose(d, i, null) } }, "Remove",
      el("span", { className: "unseen" }, ` the frame of event ${i + 1}`), " ", el("kbd", { "aria-hidden": "true" }, "0")));
}

function option(act, d, i, item, rank, before, pinned) {
  const old = before.find((other) => other.frame === item.frame);
  return el("li", { className: pinned === item.frame ? "chosen" : "" },
    el("button", {
      type: "button", title: `Set the frame ${item.frame}`, "aria-pressed": String(pinned === item.frame),
      on: { click: () => act.choose(d, i, pinned === item.frame ? null : item.frame) },
    },
    el("kbd", { "aria-hidden": "true" }, String(rank + 1)),
    el("span", { className: "frame" }, item.frame),
    bar(item.probability),
    el("span", { className: "percent" }, percent(item.probability)),
    change(item.probability, old)));
}

function change(now, old) {
  const by = old ? now - old.probability : null;
  if (by !== null && Math.abs(by) < 0.0005) return el("span", { className: "change" });
  const shown = by === null ? "new" : `${by > 0 ? "▲" : "▼"} ${Math.abs(100 * by).toFixed(1)}`;
  const heard = by === null ? "newly among the first" : `${by > 0 ? "up" : "down"} by ${Math.abs(100 * by).toFixed(1)} points`;
  return el("span", { className: `change ${by === null || by > 0 ? "up" : "down"}` },
    el("span", { "aria-hidden": "true" }, shown), el("span", { className: "unseen" }, `, ${heard}`));
}

// ---- details ------------------------------------------------------------------------------------------------

function details(story, act, d, i, event, key) {
  const input = el("input", { list: "frames", spellcheck: false, name: "frame", required: true });
  const near = story.nearest(d, i);
  return el("div", { className: "details", id: `details-${key}` },
    el("form", {
      className: "choose",
      on: { submit: (submitted) => { submitted.preventDefault(); act.choose(d, i, input.value.trim()); } },
    },
    el("label", {}, "Another frame", input), el("button", {}, "Set frame")),
    explanation(event),
    near.length
      ? el("section", {}, el("h4", {}, "Nearest events"), el("ol", { className: "near" }, near.map(nearItem)))
      : null);
}

function nearItem(item) {
  const where = item.here ? `event ${item.index + 1}` : `${item.document}, event ${item.index + 1}`;
  return el("li", {}, sentence(item.event), item.frame ? ` · ${item.frame}` : "",
    el("span", { className: "quiet" }, ` (${where}, similarity ${item.similarity.toFixed(2)})`));
}

function explanation(event) {
  if (!event.explain) return null;
  const blocks = EXPLAINED.filter(([name]) => Array.isArray(event.explain[name]) && event.explain[name].length);
  return blocks.length
    ? el("section", {}, blocks.map(([name, title]) =>
        el("div", {}, el("h4", {}, title),
          el("ul", { className: "shares" }, event.explain[name].slice(0, MOST).map(shareRow)))))
    : null;
}

function shareRow(item) {
  if (item.change !== undefined) {
    const shown = `${item.change > 0 ? "+" : "−"}${Math.abs(100 * item.change).toFixed(1)}`;
    return el("li", {}, el("span", { className: "frame" }, item.frame), bar(Math.abs(item.change)),
      el("span", { className: `percent ${item.change > 0 ? "up" : "down"}` }, shown));
  }
  return el("li", {}, el("span", { className: "frame" }, item.frame), bar(item.probability),
    el("span", { className: "percent" }, percent(item.probability)));
}
