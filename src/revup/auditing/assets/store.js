// Where the list of issues and the decisions are: on the server, or in this file and the browser's own storage.
// Both offer: list(), details(rows), decide(row, decision, frame), undo(). A decision is kept when its promise resolves.

class Problem extends Error {
  // kind: "away" (no answer: try again), "stale" (others decided meanwhile: load again), "refused"
  constructor(message, kind) {
    super(message);
    this.kind = kind;
  }
}

class ServerStore {
  constructor(data) {
    this.token = data.token;
    this.count = 0; // of decisions that this page knows; the server refuses to add to a file with more or fewer
  }

  async ask(path, body) {
    const request = { headers: { "X-Revup-Token": this.token }, cache: "no-store" };
    if (body !== undefined) {
      request.method = "POST";
      request.headers["Content-Type"] = "application/json";
      request.body = JSON.stringify(body);
    }
    let answer, data;
    try {
      answer = await fetch(path, request);
      data = await answer.json();
    } catch {
      throw new Problem("The review server does not answer.", "away");
    }
    if (answer.status === 403 && data.error === "token") { // the server was started again
      await this.renew();
      return this.ask(path, body);
    }
    const kinds = { 409: "stale", 503: "away" }; // 503: it is stopping
    if (!answer.ok) throw new Problem(data.error || answer.statusText, kinds[answer.status] || "refused");
    return data;
  }

  async renew() {
    const before = this.token;
    let session;
    try {
      session = await (await fetch("/api/session", { cache: "no-store" })).json();
    } catch {
      throw new Problem("The review server does not answer.", "away");
    }
    if (session.list !== this.id) location.reload(); // another list: nothing here fits it
    if (session.token === before) throw new Problem("The server refuses this page. Reload it.", "refused");
    this.token = session.token;
  }

  async list() {
    const found = await this.ask("/api/list");
    this.id = found.list;
    this.count = found.decisions.length;
    return found;
  }

  async details(rows) {
    return (await this.ask("/api/rows?rows=" + rows.join(","))).rows;
  }

  async decide(row, decision, frame) {
    const done = await this.ask("/api/decide", { list: this.id, after: this.count, row, decision, frame });
    this.count = done.count;
    return done.entry;
  }

  async undo() {
    this.count = (await this.ask("/api/undo", { list: this.id, after: this.count })).count;
  }
}

class FileStore {
  constructor(data) {
    this.data = data;
    this.prefix = `revup-review:${data.list}:`;
    this.entries = [];
    this.kept = true; // whether the browser keeps decisions when the page is closed
    this.exported = true;
    this.load();
    addEventListener("beforeunload", (event) => {
      if (!this.kept && !this.exported) event.preventDefault();
    });
  }

  load() {
    this.entries = [];
    try {
      for (let text; (text = localStorage.getItem(this.prefix + this.entries.length)) !== null; ) {
        this.entries.push(JSON.parse(text));
      }
      localStorage.setItem(this.prefix + "test", "1");
      localStorage.removeItem(this.prefix + "test");
    } catch {
      this.kept = false;
    }
  }

  async list() {
    this.load();
    return { ...this.data, decisions: this.entries };
  }

  async details(rows) {
    return Object.fromEntries(rows.map((row) => {
      const found = this.data.rows[row];
      const document = this.data.documents[found.id];
      const own = document && document[found.event]; // two documents may have the same id
      return [row, own && own.pred === found.pred ? { ...found, document: { events: document, total: document.length } } : found];
    }));
  }

  async decide(row, decision, frame) {
    const entry = { row, decision, frame, time: new Date().toISOString() };
    this.put(entry);
    return entry;
  }

  put(entry) {
    const key = this.prefix + this.entries.length;
    if (this.kept) {
      if (localStorage.getItem(key) !== null) throw new Problem("Another window decided meanwhile.", "stale");
      try {
        localStorage.setItem(key, JSON.stringify(entry));
      } catch {
        throw new Problem("The browser can't keep more decisions. Export them.", "refused");
      }
    }
    this.entries.push(entry);
    this.exported = false;
  }

  async undo() {
    if (this.kept) {
      if (localStorage.getItem(this.prefix + this.entries.length) !== null) {
        throw new Problem("Another window decided meanwhile.", "stale");
      }
      localStorage.removeItem(this.prefix + (this.entries.length - 1));
    }
    this.entries.pop();
    this.exported = false;
  }

  // The lines that `revup apply` reads.
  lines() {
    return this.entries.map(({ row, decision, frame, time }) => {
      const { id, event, given } = this.data.rows[row];
      return JSON.stringify({ id, event, given, decision, frame, digest: this.data.digest, time }) + "\n";
    });
  }

  // Adds the decisions of a file; returns how many were new.
  add(text) {
    const rows = new Map(this.data.rows.map((found, row) => [JSON.stringify([found.id, found.event]), row]));
    const held = new Map(this.entries.map((entry) => [entry.row, entry]));
    const fresh = text.split("\n").filter((line) => line.trim()).map((line) => {
      const { id, event, decision, frame, digest, time } = JSON.parse(line);
      const row = rows.get(JSON.stringify([id, event]));
      if (row === undefined || !["accept", "keep", "other", "skip"].includes(decision)) {
        throw new Problem(`no decision about this list: ${line.slice(0, 200)}`, "refused");
      }
      if (digest !== this.data.digest) throw new Problem("these decisions are about another file", "refused");
      return { row, decision, frame: frame ?? null, time };
    });
    const news = fresh.filter(({ row, decision, frame }) => {
      const old = held.get(row);
      return !old || old.decision !== decision || old.frame !== frame;
    });
    news.forEach((entry) => this.put(entry));
    return news.length;
  }
}
