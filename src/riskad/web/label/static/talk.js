// Requests to the server. A request that writes carries what only this page knows.

let csrf = "";

export class Failure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function request(path, options) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", ...options });
  } catch {
    throw new Failure(0, "The server does not answer. Is `riskad label` still running?");
  }
  const text = await answer.text();
  if (!answer.ok) {
    let message = text;
    try {
      message = JSON.parse(text).error ?? text;
    } catch {
      // plain words
    }
    throw new Failure(answer.status, message);
  }
  return JSON.parse(text);
}

export function get(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  return request(query ? `${path}?${query}` : path, {});
}

export function post(path, body = {}, options = {}) {
  const headers = { "Content-Type": "application/json", "X-Riskad-Csrf": csrf };
  return request(path, { method: "POST", headers, body: JSON.stringify(body), ...options });
}

export async function start() {
  const state = await get("/api/start");
  csrf = state.csrf;
  return state;
}
