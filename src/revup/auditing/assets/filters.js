// Which rows are shown and in which order, and how far the review is. Uses the state that review.js declares.

// ---- progress ----

function tally() {
  const counts = { accept: 0, keep: 0, other: 0, skip: 0 };
  let expected = 0, wrong = 0, left = 0, labelled = false;
  for (let each = 0; each < list.count; each += 1) {
    const entry = held[each];
    const p = list.p_wrong[each] || 0;
    labelled ||= name("given", each) !== null;
    if (entry) counts[entry.decision] += 1;
    if (!entry || entry.decision === "skip") left += p;
    else if (name("given", each) !== null) {
      expected += p;
      if (entry.frame !== name("given", each)) wrong += 1;
    }
  }
  return { counts, expected, wrong, left, labelled };
}

function summary() {
  const { counts } = tally();
  return `${number(counts.accept)} accepted, ${number(counts.keep)} kept, ${number(counts.other)} other, ${number(counts.skip)} skipped`;
}

function progress() {
  const { counts, expected, wrong, left, labelled } = tally();
  const done = counts.accept + counts.keep + counts.other + counts.skip;
  by("done").textContent = `${number(done)} of ${number(list.count)}`;
  by("share").textContent = percent(done / list.count);
  by("bar").value = done / list.count;
  by("counts").textContent = summary();
  by("left").textContent = labelled ? `about ${number(Math.round(left))} wrong labels left` : "";
  by("found").textContent = expected > 0 ? `${number(wrong)} found wrong so far, ${expected.toFixed(1)} expected` : "";
  by("saved").textContent = data.mode === "server" ? `every decision is saved in ${list.path}`
    : store.kept ? "this browser keeps the decisions; export them to use them" : "this browser keeps nothing: export before you close the page";
  if (!list.digest) by("saved").textContent += "; which file was reviewed is not known, so “revup apply” will refuse them";
  document.title = `${number(done)}/${number(list.count)} · Review labels`;
  const signs = { accept: "✓", keep: "✗", other: "✎", skip: "⊘" };
  by("history").replaceChildren(...entries.slice(-12).reverse().filter((entry) => entry.row >= 0).map((entry) => {
    const text = entry.decision === "skip" ? "" : ` → ${entry.frame === null ? "no label" : entry.frame}`;
    const button = make("button", { type: "button", "aria-label": `${name("pred", entry.row)}, ${DONE[entry.decision]}${text}` },
      make("span", { "aria-hidden": "true" }, signs[entry.decision]), make("span", {}, ...breakable(name("pred", entry.row) + text)));
    button.addEventListener("click", () => { if (!busy) show(entry.row); });
    return make("li", {}, button);
  }));
}

// ---- filters ----

const FILTERS = ["frame", "pred", "source", "status", "order"];
const filterKey = () => `revup-filters:${list.list}`;

function filter() {
  const value = Object.fromEntries(FILTERS.map((each) => [each, by(`filter-${each}`).value]));
  const matching = (text) => { // an exact name, else every name that contains the text
    const query = text.trim().toLowerCase();
    if (!query) return null;
    const exact = list.names.findIndex((each) => each === text.trim());
    return new Set(exact >= 0 ? [exact] : list.names.flatMap((each, index) => (each.toLowerCase().includes(query) ? [index] : [])));
  };
  const frames = matching(value.frame), preds = matching(value.pred);
  order = [];
  for (let each = 0; each < list.count; each += 1) {
    if (frames && !frames.has(list.given[each]) && !frames.has(list.proposed[each])) continue;
    if (preds && !preds.has(list.pred[each])) continue;
    if (value.source && String(list.source[each]) !== value.source) continue;
    if (value.status && value.status !== (held[each] ? held[each].decision : "open")) continue;
    order.push(each);
  }
  if (value.order === "pred") {
    const rank = list.names.map((text, index) => [text.toLowerCase(), index]).sort((a, b) => (a[0] < b[0] ? -1 : 1));
    const place = new Array(list.names.length);
    rank.forEach(([, index], at) => { place[index] = at; });
    order.sort((a, b) => place[list.pred[a]] - place[list.pred[b]] || a - b);
  } else if (value.order === "document") {
    order.sort((a, b) => list.document[a] - list.document[b] || list.event[a] - list.event[b]);
  }
  by("filtered").textContent = order.length < list.count ? `${number(order.length)} of ${number(list.count)}` : "";
  try { sessionStorage.setItem(filterKey(), JSON.stringify(value)); } catch { /* they are forgotten on reload */ }
}

async function filterAndShow() {
  filter();
  const first = order.find((each) => !held[each]);
  const wanted = by("filter-status").value && by("filter-status").value !== "open" ? order[0] : first;
  await show(wanted === undefined ? -1 : wanted);
}

function fillFilters() {
  const counted = (column) => {
    const counts = new Map();
    for (const index of list[column]) if (index >= 0) counts.set(index, (counts.get(index) || 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]);
  };
  const options = (column) => counted(column).map(([index]) => make("option", { value: list.names[index] }));
  by("pred-names").replaceChildren(...options("pred"));
  by("frame-names").replaceChildren(...list.frames.map((frame) => make("option", { value: frame })));
  by("filter-source").replaceChildren(make("option", { value: "" }, "any"),
    ...counted("source").map(([index, count]) => make("option", { value: index }, `${list.names[index]} (${number(count)})`)));
  try {
    const saved = JSON.parse(sessionStorage.getItem(filterKey()) || "{}");
    for (const each of FILTERS) if (saved[each]) by(`filter-${each}`).value = saved[each];
    by("filters").open = Object.values(saved).some(Boolean) && WIDE.matches;
  } catch { /* none were saved */ }
}
