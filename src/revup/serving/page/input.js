// What users paste becomes the `documents` of a request: JSON in several shapes, or one event a line.

export const EXAMPLE_TEXT = `Police arrested a man in the harbour on Monday. Prosecutors charged him with fraud.

A jury convicted him in May, and the judge sentenced him to three years.`;

export const EXAMPLE_EVENTS = `arrested | police | man | in
charged | prosecutors | man | with
tried | court | man
convicted | jury | man | of
sentenced | judge | man | to`;

const SLOTS = ["pred", "subj", "obj", "mod"];

export function parseDocuments(text) {
  const trimmed = text.trim();
  if (!trimmed) throw new Error("There is nothing to label yet: paste events, one a line, or JSON.");
  return /^[[{]/.test(trimmed) ? fromJson(trimmed) : [{ id: "story", events: fromLines(trimmed) }];
}

function fromJson(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch (error) {
    const lines = text.split("\n").filter((line) => line.trim());
    if (lines.length < 2) throw new Error(`This is not valid JSON: ${error.message}`);
    found = lines.map((line, index) => {
      try {
        return JSON.parse(line);
      } catch {
        throw new Error(`Line ${index + 1} is not valid JSON: ${error.message}`);
      }
    });
  }
  if (found && Array.isArray(found.documents)) return found.documents;
  if (!Array.isArray(found)) found = [found];
  const isDocument = (item) => item && typeof item === "object" && "events" in item;
  if (found.length && found.every(isDocument)) return found.map((item, i) => ({ id: `story ${i + 1}`, ...item }));
  return [{ id: "story", events: found }];
}

function fromLines(text) {
  return text.split("\n").filter((line) => line.trim()).map((line, index) => {
    const cells = line.split(/\s*[|\t]\s*|\s*,\s*/).map((cell) => cell.trim());
    if (!cells[0]) throw new Error(`Line ${index + 1}: expected a predicate first, found nothing.`);
    if (cells.length > SLOTS.length) {
      throw new Error(`Line ${index + 1}: expected predicate | subject | object | modifier, found ${cells.length} parts.`);
    }
    const filled = SLOTS.map((slot, i) => [slot, cells[i]]).filter(([, word]) => word && word !== "_");
    return Object.fromEntries(filled);
  });
}
