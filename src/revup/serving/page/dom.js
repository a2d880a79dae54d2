// Small helpers to build elements: nothing is ever parsed as HTML, so that what users paste stays text.

export const $ = (id) => document.getElementById(id);

export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name in made && name !== "list") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

export function percent(probability) {
  if (probability > 0 && probability < 0.0005) return "<0.1%";
  return probability < 0.0995 ? `${(100 * probability).toFixed(1)}%` : `${Math.round(100 * probability)}%`;
}

export function bar(probability) {
  const inner = el("i");
  inner.style.width = `${Math.max(0, Math.min(100, 100 * probability))}%`;
  return el("span", { className: "bar", "aria-hidden": "true" }, inner);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { value: text, className: "unseen", "aria-hidden": "true" });
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    if (!done) throw new Error("the browser does not allow to copy");
  }
}
