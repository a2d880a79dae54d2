// The description of the API, rendered from /openapi.json.

import { ask, curl } from "./api.js";
import { $, el } from "./dom.js";

const nameOf = (reference) => reference.split("/").at(-1);

function typeOf(schema) {
  if (!schema) return "";
  if (schema.$ref) return el("a", { href: `#${nameOf(schema.$ref)}` }, nameOf(schema.$ref));
  if (schema.allOf) return typeOf(schema.allOf[0]);
  const kind = Array.isArray(schema.type) ? schema.type.join(" or ") : schema.type || "any";
  if (kind === "array") return el("span", {}, "list of ", typeOf(schema.items));
  return kind;
}

// Text in which `code` is marked as in Markdown.
const marked = (text) => text.split("`").map((part, i) => (i % 2 ? el("code", {}, part) : part));

function limits(schema) {
  const parts = [];
  if (schema.minimum !== undefined) parts.push(`at least ${schema.minimum}`);
  if (schema.maximum !== undefined) parts.push(`at most ${schema.maximum}`);
  if (schema.default !== undefined) parts.push(`default ${JSON.stringify(schema.default)}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

function table(head, rows) {
  return el("div", { className: "scroll" }, el("table", {},
    el("thead", {}, el("tr", {}, head.map((cell) => el("th", { scope: "col" }, cell)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell) => el("td", {}, cell)))))));
}

function fields(schema) {
  const needed = new Set(schema.required || []);
  const rows = Object.entries(schema.properties || {}).map(([name, field]) => [
    el("code", {}, name),
    typeOf(field),
    `${field.description || ""}${limits(field)}${needed.has(name) ? " · required" : ""}`,
  ]);
  const own = rows.length ? table(["field", "type", "meaning"], rows) : "";
  return schema.allOf ? [el("p", {}, "The fields of ", typeOf(schema), ", and:"), own] : own;
}

function operation(path, method, about) {
  const asked = about.requestBody?.content?.["application/json"];
  const id = `${method}${path}`;
  return el("article", { "aria-labelledby": id },
    el("h2", { id }, el("code", {}, `${method.toUpperCase()} ${path}`)),
    el("p", {}, el("strong", {}, about.summary || "")),
    el("p", {}, marked(about.description || "")),
    asked ? [el("h3", {}, "Body"), el("p", {}, typeOf(asked.schema))] : "",
    asked?.example ? [el("h3", {}, "Example"), el("pre", { tabIndex: 0 }, curl(path, asked.example))] : "",
    el("h3", {}, "Answers"),
    table(["status", "meaning", "body"], Object.entries(about.responses).map(([status, answer]) => [
      status, answer.description, typeOf(answer.content?.["application/json"]?.schema),
    ])));
}

async function show() {
  const api = await ask("/openapi.json");
  $("about").textContent = `${api.info.summary}, version ${api.info.version}`;
  $("description").textContent = api.info.description;
  for (const [path, methods] of Object.entries(api.paths)) {
    for (const [method, about] of Object.entries(methods)) $("paths").append(operation(path, method, about));
  }
  for (const [name, schema] of Object.entries(api.components.schemas)) {
    $("schemas").append(el("article", {}, el("h2", { id: name }, el("code", {}, name)),
      schema.description ? el("p", {}, schema.description) : "", fields(schema)));
  }
}

show().catch((error) => { $("alert").textContent = error.message; });
