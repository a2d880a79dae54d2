// What the page shows. Every text that comes from a file becomes a text node, never markup.

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== undefined && child !== null));
  return element;
}

// A name that may be broken after its underscores, where a line ends.
function breakable(name) {
  return name.split(/(?<=_)/).flatMap((part, index) => (index ? [make("wbr", {}), part] : [part]));
}

function percent(value) {
  if (typeof value !== "number") return "";
  const share = 100 * value;
  if (share > 0 && share < 0.05) return "<0.1%";
  if (share > 99.95 && share < 100) return ">99.9%";
  return (share > 0 && share < 1) || (share > 99 && share < 100) ? `${share.toFixed(1)}%` : `${Math.round(share)}%`;
}

function meter(value) {
  const bar = make("i", {});
  bar.style.width = `${100 * (value || 0)}%`;
  return make("span", { class: "meter", "aria-hidden": "true" }, bar);
}

// The sentence with its predicate marked. Offsets count characters, which JavaScript's strings do not.
function sentence(event) {
  const letters = Array.from(event.text);
  let [start, end] = event.span || [0, 0];
  if (!event.span) { // without offsets the predicate is marked where it stands once
    const parts = event.text.toLowerCase().split(event.pred.toLowerCase());
    if (parts.length === 2 && event.pred) {
      start = Array.from(event.text.slice(0, parts[0].length)).length;
      end = start + Array.from(event.pred).length;
    }
  }
  const words = letters.slice(start, end).join("");
  return [letters.slice(0, start).join(""), words ? make("mark", {}, words) : "", letters.slice(end).join("")];
}

function tuple(event) {
  const parts = [];
  for (const slot of ["subj", "pred", "obj", "mod"]) {
    if (!event[slot]) continue;
    if (parts.length) parts.push(" ");
    parts.push(slot === "pred" ? make("mark", {}, event[slot]) : event[slot]);
  }
  return parts;
}

const words = (event) => (event.text ? sentence(event) : tuple(event));

// The frames to choose from by one key: proposed, given, then what else is probable or in the dictionary.
function optionsOf(issue) {
  const entry = issue.candidates || {};
  const listed = Array.isArray(entry) ? entry : Object.keys(entry);
  const total = Array.isArray(entry) ? 0 : Object.values(entry).reduce((sum, weight) => sum + weight, 0);
  const posterior = issue.posterior || {};
  const remarks = (name, first) => {
    const found = first ? [first] : [];
    if (listed.includes(name)) found.push(total > 0 ? `dictionary: ${percent(entry[name] / total)}` : "in the dictionary");
    else if (listed.length) found.push("not in the dictionary's entry");
    return found.join(" · ");
  };
  const options = [];
  const { given, proposed } = issue;
  if (proposed !== null && proposed !== given) {
    options.push({ frame: proposed, p: issue.p_proposed, key: "A", kind: "proposed", remark: remarks(proposed, "proposed") });
  }
  const source = issue.source && issue.source !== "frame" ? `given by ${issue.source}` : "given";
  if (given === null) options.push({ frame: null, text: "no label", key: "K", kind: "given", remark: "leaves it without one" });
  else options.push({ frame: given, p: posterior[given] ?? issue.p_given, key: "K", kind: "given", remark: remarks(given, source) });
  const names = Object.keys(posterior).filter((name) => posterior[name] >= 0.0005).sort((a, b) => posterior[b] - posterior[a]);
  const others = [...new Set([...names, ...listed])].filter((name) => name !== given && name !== proposed);
  others.slice(0, 7).forEach((name, index) => {
    options.push({ frame: name, p: posterior[name], key: String(index + 1), kind: "", remark: remarks(name) });
  });
  return options;
}

function optionList(options, entry, take) {
  return make("ul", { class: "options", "aria-label": "Frames" }, ...options.map((option) => {
    const chosen = entry && entry.decision !== "skip" && entry.frame === option.frame;
    const name = make("span", { class: "name" }, make("b", {}, ...breakable(option.text || option.frame)));
    if (option.remark) name.append(make("small", {}, option.remark));
    const button = make("button", { type: "button", class: `${option.kind} ${chosen ? "chosen" : ""}`, "aria-pressed": String(!!chosen) },
      make("kbd", {}, option.key), name, meter(option.p), make("span", { class: "share" }, percent(option.p)));
    button.addEventListener("click", () => take(option.frame));
    return make("li", {}, button);
  }));
}

function section(title, ...children) {
  return make("section", {}, make("h3", {}, title), ...children);
}

function slots(issue) {
  const names = { subj: "subject", pred: "predicate", obj: "object", mod: "modifier" };
  const pairs = Object.keys(names).filter((slot) => issue[slot]);
  if (issue.lemma && issue.lemma !== issue.pred) pairs.push("lemma");
  return make("dl", { class: "slots" }, ...pairs.map((slot) =>
    make("div", {}, make("dt", {}, names[slot] || slot), make("dd", {}, issue[slot]))));
}

function dictionary(issue) {
  const entry = issue.candidates;
  if (!entry) return null;
  const total = Array.isArray(entry) ? 0 : Object.values(entry).reduce((sum, weight) => sum + weight, 0);
  const shown = Array.isArray(entry) ? entry
    : Object.entries(entry).sort((a, b) => b[1] - a[1]).map(([name, weight]) => (total > 0 ? `${name} ${percent(weight / total)}` : name));
  return section(`Dictionary: ${issue.lemma || issue.pred}`, make("p", {}, shown.join(", ") || "no frames"));
}

// The document, or the events around this one where only they are known.
function surroundings(issue) {
  const own = { event: issue.event, pred: issue.pred, subj: issue.subj, obj: issue.obj, mod: issue.mod, frame: issue.given, text: issue.text, span: issue.span };
  const known = issue.document ? issue.document.events : [...(issue.context || []), own].sort((a, b) => a.event - b.event);
  if (known.length < 2) return null;
  const list = make("ol", { class: "around", tabindex: "0", "aria-label": "Events of the document" }, ...known.map((event) =>
    make("li", { "aria-current": event.event === issue.event ? "true" : null },
      make("span", { class: "index" }, String(event.event + 1)),
      make("span", { class: "words" }, ...words(event)),
      make("span", { class: "frame" }, ...breakable(event.frame || "–")))));
  return section("The document", list);
}

const DONE = { accept: "accepted", keep: "kept", other: "other frame", skip: "skipped" };

function eventCard(issue, position, entry, options, take) {
  const total = issue.document ? ` of ${issue.document.total}` : "";
  const decided = entry && make("span", { class: "decided" }, DONE[entry.decision] + (entry.decision === "other" ? `: ${entry.frame === null ? "no frame" : entry.frame}` : ""));
  const wrong = typeof issue.p_wrong === "number" && issue.given !== null && make("div", { class: "wrong" },
    make("strong", {}, `p(wrong) ${percent(issue.p_wrong)}`), meter(issue.p_wrong));
  return make("div", { class: "card" },
    make("p", { class: "where" },
      make("span", {}, `${issue.id} · event ${issue.event + 1}${total}`),
      make("span", {}, `${position} `, decided || "")),
    make("h2", { id: "sentence" }, ...words(issue)),
    issue.text || issue.lemma ? slots(issue) : null,
    wrong || null,
    optionList(options, entry, take),
    issue.reasons.length ? section("Why", make("ul", { class: "reasons" }, ...issue.reasons.map((reason) => make("li", {}, reason)))) : null,
    dictionary(issue),
    surroundings(issue));
}

function showEvent(...about) {
  const place = document.getElementById("event");
  place.replaceChildren(eventCard(...about));
  document.getElementById("main").scrollTop = 0;
  const list = place.querySelector(".around");
  const own = list && list.querySelector("[aria-current]");
  if (own) list.scrollTop = own.offsetTop - list.offsetTop - list.clientHeight / 2 + own.clientHeight / 2;
  place.focus({ preventScroll: true });
}

function showFinished(heading, ...children) {
  for (const button of document.querySelectorAll("#actions button")) button.disabled = button.dataset.action !== "undo";
  const place = document.getElementById("event");
  place.replaceChildren(make("div", { class: "card finished" }, make("h2", { id: "sentence" }, heading), ...children));
  place.focus({ preventScroll: true });
}
