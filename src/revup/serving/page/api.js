// Requests to the server that this page came from.

export class Refused extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

let token = "";

export function useToken(text) {
  token = text.trim();
}

export const hasToken = () => token !== "";

export async function ask(path, body) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  const options = { headers };
  if (body !== undefined) {
    options.method = "POST";
    options.body = JSON.stringify(body);
    headers["Content-Type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Refused(0, "The server does not answer.");
  }
  let data = null;
  try {
    data = await answer.json();
  } catch {
    data = { detail: `The server answered ${answer.status} without JSON.` };
  }
  if (!answer.ok) throw new Refused(answer.status, data.detail || `The server answered ${answer.status}.`);
  return data;
}

export function curl(path, body) {
  const lines = [`curl ${location.origin}${path}`, "-H 'Content-Type: application/json'"];
  if (token) lines.push('-H "Authorization: Bearer $REVUP_TOKEN"');
  lines.push(`-d '${JSON.stringify(body).replaceAll("'", "'\\''")}'`);
  return lines.join(" \\\n  ");
}
