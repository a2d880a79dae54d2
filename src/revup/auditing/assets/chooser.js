// The search through the frame list: a combobox with a listbox in a dialog. choose() resolves to
// {frame} (null: no frame fits), or to undefined where the reviewer closed it.

const MOST_MATCHES = 200;

// 0 is best; undefined is no match. Words of a name begin after _ - . or a blank.
function rank(name, query) {
  const low = name.toLowerCase();
  if (low === query) return 0;
  if (low.startsWith(query)) return 1;
  const at = low.indexOf(query);
  if (at > 0) return /[\s_.:-]/.test(low[at - 1]) ? 2 : 3;
  let next = 0;
  for (const letter of low) if (letter === query[next]) next += 1;
  return next === query.length ? 4 : undefined;
}

class Chooser {
  constructor() {
    this.dialog = document.getElementById("chooser");
    this.input = document.getElementById("search");
    this.box = document.getElementById("matches");
    this.input.addEventListener("input", () => this.search());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("click", (event) => {
      const item = event.target.closest("li");
      if (item) this.take(Number(item.dataset.index));
    });
    this.dialog.addEventListener("close", () => this.finish(undefined));
  }

  // frames: all names; first: {name: remark} of those to offer before anything is typed
  choose(frames, first) {
    this.frames = frames;
    this.first = first;
    this.input.value = "";
    this.search();
    this.dialog.showModal();
    this.input.focus();
    return new Promise((resolve) => { this.resolve = resolve; });
  }

  search() {
    const query = this.input.value.trim().toLowerCase();
    let names;
    if (!query) {
      names = [...Object.keys(this.first), ...this.frames.filter((name) => !(name in this.first))];
    } else {
      const ranked = this.frames.map((name) => [rank(name, query), name]).filter(([place]) => place !== undefined);
      ranked.sort((a, b) => a[0] - b[0] || (b[1] in this.first) - (a[1] in this.first) || (a[1] < b[1] ? -1 : 1));
      names = ranked.map(([, name]) => name);
    }
    this.found = names.length;
    this.items = names.slice(0, MOST_MATCHES).map((name) => ({ frame: name, remark: this.first[name] || "" }));
    this.at = this.items.length ? 0 : -1; // what is typed never becomes a new frame by mistake
    const typed = this.input.value.trim();
    if (typed && !this.frames.includes(typed)) this.items.push({ frame: typed, text: `“${typed}”`, remark: "a new frame" });
    this.items.push({ frame: null, text: "No frame fits", remark: "removes the label" });
    this.box.replaceChildren(...this.items.map((item, index) => {
      const line = make("li", { role: "option", id: `match-${index}` }, make("span", {}, item.text || item.frame));
      line.dataset.index = index;
      if (item.remark) line.append(make("span", { class: "quiet" }, item.remark));
      return line;
    }));
    document.getElementById("match-count").textContent =
      `· ${this.found.toLocaleString("en")} of ${this.frames.length.toLocaleString("en")} frames`;
    this.mark();
  }

  mark() {
    [...this.box.children].forEach((line, index) => line.setAttribute("aria-selected", index === this.at));
    const line = this.box.children[this.at];
    this.input.setAttribute("aria-activedescendant", line ? line.id : "");
    if (line) line.scrollIntoView({ block: "nearest" });
  }

  key(event) {
    const last = this.items.length - 1;
    const page = 8;
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page };
    if (event.key in moves) {
      event.preventDefault();
      const step = moves[event.key];
      if (Math.abs(step) === 1) this.at = (this.at + step + last + 1 + (this.at < 0 && step < 0)) % (last + 1);
      else this.at = Math.max(0, Math.min(last, this.at + step));
      this.mark();
    } else if (event.key === "Enter") {
      event.preventDefault();
      if (this.at >= 0) this.take(this.at);
    }
  }

  take(index) {
    this.finish({ frame: this.items[index].frame });
    this.dialog.close();
  }

  finish(result) {
    const resolve = this.resolve;
    this.resolve = undefined;
    if (resolve) resolve(result);
  }
}
