// Requests to the operator. The token stays in this tab: it is in sessionStorage and in no cookie.

const KEY = "mooring-token";
const SILENCE = 15000; // milliseconds without a message after which a stream counts as lost

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

// The operator's answer is no; `status` is that of HTTP, 0 if there is no answer.
export class Failure extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function asked(path, options = {}) {
  const headers = { ...options.headers };
  if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, "no answer from the operator");
  }
  if (!response.ok) {
    const text = (await response.text()).trim();
    const failure = new Failure(response.status, text || `the operator answers ${response.status}`);
    if (response.status === 401) dispatchEvent(new CustomEvent("signed-out", { detail: failure.message }));
    throw failure;
  }
  return response;
}

export async function get(path, signal) {
  return (await asked(`api/${path}`, { signal })).json();
}

export async function post(path, body, signal) {
  const options = { method: "POST", body: JSON.stringify(body), signal };
  return (await asked(`api/${path}`, { ...options, headers: { "Content-Type": "application/json" } })).json();
}

// `mooring ui` opens the page with a key that is good for one use.
export async function exchange(key) {
  const answer = await asked("session", { method: "POST", body: key });
  token.set(await answer.text());
}

// Calls `message(event, data)` for each server-sent event until close() is called, and connects again
// after a loss. `state(connected, text)` tells how it goes.
export function stream(path, message, state) {
  let closed = false;
  let attempt = 0;
  let controller = new AbortController();
  let timer = 0;

  const watch = () => {
    clearTimeout(timer);
    timer = setTimeout(() => controller.abort(), SILENCE);
  };

  async function read() {
    controller = new AbortController();
    watch();
    const response = await asked(`api/${path}`, { signal: controller.signal });
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let buffer = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      watch();
      let from = Math.max(0, buffer.length - 1);
      buffer += value;
      for (let end = buffer.indexOf("\n\n", from); end >= 0; end = buffer.indexOf("\n\n")) {
        const [event, data] = buffer.slice(0, end).split("\n", 2);
        buffer = buffer.slice(end + 2);
        attempt = 0;
        state(true, "");
        message(event.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
      }
    }
  }

  async function run() {
    while (!closed) {
      let text = "the connection was lost";
      try {
        await read();
      } catch (error) {
        if (error instanceof Failure && error.status) text = error.message;
        if (error instanceof Failure && (error.status === 401 || error.status === 403)) {
          if (!closed) state(false, text);
          return;
        }
        if (!(error instanceof Failure) && error.name !== "AbortError" && error.name !== "TypeError") throw error;
      }
      clearTimeout(timer);
      if (closed) return;
      state(false, `${text}; trying again`);
      await new Promise((resolve) => setTimeout(resolve, Math.min(10000, 500 * 2 ** attempt)));
      attempt += 1;
    }
  }

  run();
  return () => {
    closed = true;
    clearTimeout(timer);
    controller.abort();
  };
}
