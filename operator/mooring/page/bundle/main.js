// The frame of the page: signing in, the views and their addresses, theme and connection.

import { Failure, exchange, get, stream, token } from "./api.js";
import { clusterView } from "./cluster.js";
import { clear, h } from "./dom.js";
import { podView } from "./pod.js";
import { podGroupView } from "./podgroup.js";
import { policyView } from "./policy.js";
import { queueView } from "./queue.js";
import { quotasView } from "./quotas.js";
import { rebalancingView } from "./rebalancing.js";
import { tryView } from "./try.js";

// Name, title, view; the first two have a stream of their own.
const VIEWS = [
  ["cluster", "Cluster", clusterView, true],
  ["queue", "Queue", queueView, true],
  ["quotas", "Quotas", quotasView],
  ["pod", "Pod", podView],
  ["podgroup", "Pod group", podGroupView],
  ["try", "Try it", tryView],
  ["rebalancing", "Rebalancing", rebalancingView],
  ["policy", "Policy", policyView],
];
const THEMES = ["system", "light", "dark"];

const app = document.getElementById("app");
// The view on the page: { close() }, update(parameters) if it can stay, and escape() if it has a part
// that Esc closes.
let shown = null;
let closeStream = null; // of the frame, while a view is shown that has no stream of its own

function setTheme(theme) {
  localStorage.setItem("mooring-theme", theme);
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  dispatchEvent(new Event("theme"));
}

function themeButton() {
  const label = () => `Theme: ${localStorage.getItem("mooring-theme") ?? "system"}`;
  const button = h("button", { type: "button", class: "quiet", id: "theme", onclick: () => {
    const now = THEMES.indexOf(localStorage.getItem("mooring-theme") ?? "system");
    setTheme(THEMES[(now + 1) % THEMES.length]);
    button.textContent = label();
  } }, label());
  return button;
}

function leave() {
  shown?.close();
  closeStream?.();
  shown = closeStream = null;
}

// An address may have been typed by hand: a "%" that stands for nothing is taken as it is.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

// The view's name, its path and its parameters in the part of the address after "#".
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?", 2);
  const [name, ...rest] = path.split("/").map(decoded);
  return { name: name || "cluster", rest, query: new URLSearchParams(query) };
}

function login(message) {
  leave();
  const input = h("input", {
    id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true,
    "aria-describedby": "token-help",
  });
  const error = h("p", { class: "error", role: "alert" }, message);
  const form = h("form", { class: "login", onsubmit: async (event) => {
    event.preventDefault();
    token.set(input.value.trim());
    error.textContent = "";
    await enter(true);
  } },
  h("h1", {}, "Mooring"),
  h("p", {}, "Sign in with a bearer token that the API server accepts. It stays in this tab."),
  h("label", { for: "token" }, "Token"), input,
  h("p", { id: "token-help", class: "hint" }, "For example ",
    h("code", {}, "kubectl create token NAME -n NAMESPACE"),
    " for a service account that is bound to the ClusterRole mooring-page. Or run ",
    h("code", {}, "mooring ui"), ", which signs in with your kubeconfig."),
  h("button", { type: "submit" }, "Sign in"), error);
  clear(app, h("div", { class: "center" }, form));
  input.focus();
}

async function enter(tried = false) {
  let session;
  try {
    session = await get("session");
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    const refused = error.status === 401 || error.status === 403;
    if (refused) token.forget();
    // Without a token the answer only says that somebody unknown may not see the page.
    login(tried || !refused ? error.message : "");
    return;
  }
  frame(session);
}

function frame(session) {
  const heading = h("h1", { class: "visually-hidden" });
  const content = h("div", {});
  const main = h("main", { id: "content", tabindex: "-1" }, heading, content);
  const connection = h("span", { class: "connection", role: "status", id: "connection" });
  const lost = h("p", { class: "banner lost", id: "lost", role: "status", hidden: true });
  const banner = h("p", { class: "banner", role: "status", hidden: true },
    "This replica is a stand-by: it sees nodes and pods, but queue and decisions are the leading replica's. ",
    "mooring ui finds that one.");
  const links = VIEWS.map(([name, title]) => h("a", { href: `#/${name}`, "data-view": name }, title));
  let heard = null; // when the view last got something
  const context = {
    session,
    connected(connected, text) {
      connection.dataset.connected = String(connected);
      connection.textContent = connected ? "live" : "not connected";
      main.classList.toggle("stale", !connected);
      lost.hidden = connected;
      if (connected) heard = new Date();
      const words = `${text}. ${heard === null ? "" : `What is shown is of ${heard.toLocaleTimeString()}.`}`;
      if (!connected && lost.textContent !== words) lost.textContent = words; // or it would be read out again
    },
    leading(leading) {
      banner.hidden = leading;
    },
  };
  clear(app,
    h("header", {},
      h("strong", { class: "brand" }, "Mooring"),
      h("nav", { "aria-label": "Views" }, links),
      h("div", { class: "right" }, connection,
        h("span", { class: "user", title: `signed in as ${session.user}` }, session.user),
        themeButton(),
        h("button", { type: "button", class: "quiet", id: "sign-out", onclick: () => {
          dispatchEvent(new CustomEvent("signed-out", { detail: "" }));
        } }, "Sign out"))),
    banner, lost, main);
  context.leading(session.leading);

  const show = () => {
    const { name, rest, query } = address();
    const view = VIEWS.find(([known]) => known === name) ?? VIEWS[0];
    for (const link of links) {
      if (link.dataset.view === view[0]) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    document.title = `${view[1]} - Mooring`;
    heading.textContent = view[1];
    if (shown?.name === view[0] && shown.update !== undefined) {
      shown.update(rest, query);
      return;
    }
    leave();
    heard = null;
    connection.textContent = "";
    delete connection.dataset.connected;
    main.classList.remove("stale");
    lost.hidden = true;
    clear(content);
    scrollTo(0, 0);
    shown = { name: view[0], ...view[2](content, context, rest, query) };
    if (!view[3]) {
      closeStream = stream("stream?nodes=false", (_event, data) => context.leading(data.leading), context.connected);
    }
  };
  const close = () => {
    removeEventListener("hashchange", show);
    removeEventListener("signed-out", out);
  };
  const out = (event) => {
    close();
    token.forget();
    login(event.detail);
  };
  addEventListener("hashchange", show);
  addEventListener("signed-out", out, { once: true });
  show();
}

addEventListener("keydown", (event) => {
  if (event.key === "Escape" && !event.defaultPrevented) shown?.escape?.();
});

async function begin() {
  setTheme(localStorage.getItem("mooring-theme") ?? "system");
  const key = /^#key=([\w-]+)$/.exec(location.hash);
  if (key !== null) {
    history.replaceState(null, "", location.pathname);
    try {
      await exchange(key[1]);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      login("this address was used already; run mooring ui again");
      return;
    }
  }
  await enter(token.get() !== "");
}

begin();
