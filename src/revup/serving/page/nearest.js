// The nearest events by the cosine of their vectors, among this story and those labelled before on this page.

const MOST = 2000; // events that are remembered

export class Memory {
  constructor() {
    this.items = [];
  }

  // Add the events of an answer; `vectors` has a row for each of them, in order.
  add(documents, vectors, story, model) {
    let row = 0;
    for (const document of documents) {
      document.events.forEach((event, index) => {
        const vector = vectors[row++];
        const length = Math.hypot(...vector) || 1;
        const frame = event.predicted?.[0]?.frame ?? null;
        const unit = vector.map((value) => value / length);
        this.items.push({ story, model, document: document.id, index, event, frame, unit });
      });
    }
    if (this.items.length > MOST) this.items.splice(0, this.items.length - MOST);
  }

  nearest(story, document, index, count = 3) {
    const own = this.items.find((item) => item.story === story && item.document === document && item.index === index);
    if (!own) return [];
    return this.items
      .filter((item) => item !== own && item.model === own.model)
      .map((item) => ({ ...item, similarity: item.unit.reduce((sum, value, i) => sum + value * own.unit[i], 0) }))
      .sort((a, b) => b.similarity - a.similarity)
      .slice(0, count);
  }
}
