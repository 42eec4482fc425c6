// The view Queue: where pending pods are, what they wait for, and how that went in the last hour.

import { get, stream } from "./api.js";
import { SERIES, trendChart } from "./chart.js";
import { VirtualList, bar, clear, cutPod, duration, h, number, plural, podAddress } from "./dom.js";

const STATES = ["active", "backoff", "unschedulable", "gated", "in flight", "waiting at Permit", "being bound", "without a profile"];
const HINTS = {
  active: "decided next",
  backoff: "tried again after a pause",
  unschedulable: "no node fits; tried again after an event that may help",
  gated: "held back before the queue",
  "in flight": "being decided",
  "waiting at Permit": "assumed on a node, waiting for plugins",
  "being bound": "its Binding is written",
  "without a profile": "no profile takes it",
};
const PART = 200; // pods fetched at a time
const EVERY = 3000; // milliseconds between two looks at the groups
const NARROW = matchMedia("(max-width: 42rem)"); // a row of the list has two lines then, as in page.css

export function queueView(content, context, _rest, query) {
  const selected = {};
  for (const name of ["state", "cause", "namespace", "owner", "search"]) selected[name] = query.get(name) ?? "";
  let parts = new Map(); // parts of the list by number
  let total = 0;
  let generation = 0;
  let groups = null;
  const ended = new AbortController();

  const tiles = h("div", { class: "tiles", role: "group", "aria-label": "Pending pods by state" });
  const causes = h("div", { class: "groups", id: "causes" });
  const owners = h("div", { class: "groups", id: "owners" });
  const chart = h("div", { class: "chart", id: "trend" });
  const filters = h("p", { class: "filters", role: "status" });
  const problem = h("p", { class: "error", role: "alert" });
  const search = h("input", {
    id: "search", type: "search", autocomplete: "off", placeholder: "namespace/name", value: selected.search,
    oninput: () => {
      clearTimeout(search.timer);
      search.timer = setTimeout(() => filter("search", search.value.trim()), 300);
    },
  });
  const list = new VirtualList({
    label: "Pending pods",
    row: (index) => podRow(pod(index)),
    open: (index) => {
      const found = pod(index);
      if (found !== undefined) location.hash = podAddress(found.pod);
    },
    need: (from, to) => {
      for (let part = Math.floor(from / PART); part * PART < to; part++) fetchPart(part);
    },
  });

  clear(content, problem, tiles,
    h("div", { class: "columns" },
      h("section", {}, h("h2", {}, "By cause"), causes),
      h("section", {}, h("h2", {}, "By owner"), owners)),
    h("section", {}, h("h2", {}, "The last hour"), chart),
    h("section", {}, h("h2", {}, "Pods"),
      h("div", { class: "controls" }, h("label", { for: "search" }, "Search ", search), filters),
      h("div", { class: "list-head" }, ["pod", "state", "cause", "priority", "attempts", "pending"].map((text) => h("span", {}, text))),
      list.element));

  const arrange = () => list.setRowHeight(NARROW.matches ? 72 : 34);
  NARROW.addEventListener("change", arrange);
  arrange();

  const pod = (index) => parts.get(Math.floor(index / PART))?.pods?.[index % PART];

  function podRow(found) {
    if (found === undefined) return null;
    return [
      h("span", { class: "cell-pod" }, cutPod(found.pod)), h("span", { class: "cell-state" }, found.state),
      h("span", { class: "cell-cause", title: found.cause }, found.cause),
      h("span", { class: "num" }, number(found.priority)), h("span", { class: "num" }, number(found.attempts)),
      h("span", { class: "num" }, duration(found.pendingSeconds)),
    ];
  }

  async function fetchPart(part) {
    if (parts.has(part)) return;
    const now = generation;
    parts.set(part, {});
    const wanted = new URLSearchParams({ offset: part * PART, limit: PART });
    for (const [name, value] of Object.entries(selected)) if (value) wanted.set(name, value);
    try {
      const answer = await get(`pods?${wanted}`, ended.signal);
      if (now !== generation) return;
      parts.set(part, answer);
      total = answer.total;
      list.resize(total);
      describe();
    } catch (error) {
      if (error.name !== "AbortError" && now === generation) parts.delete(part);
    }
  }

  function reload() {
    generation += 1;
    parts = new Map();
    fetchPart(0);
  }

  // The visible parts are fetched again, and replace the old ones when they are there.
  async function refreshList() {
    const now = generation;
    const first = Math.floor(list.element.scrollTop / list.rowHeight / PART);
    const wanted = new URLSearchParams({ offset: first * PART, limit: PART });
    for (const [name, value] of Object.entries(selected)) if (value) wanted.set(name, value);
    const answer = await get(`pods?${wanted}`, ended.signal);
    if (now !== generation) return;
    parts = new Map([[first, answer]]);
    total = answer.total;
    list.resize(total);
    describe();
  }

  function filter(name, value) {
    selected[name] = selected[name] === value ? "" : value;
    const kept = new URLSearchParams(Object.entries(selected).filter(([, each]) => each));
    history.replaceState(null, "", `#/queue${kept.size ? `?${kept}` : ""}`);
    list.element.scrollTop = 0;
    reload();
    drawGroups();
    describe();
  }

  function describe() {
    const words = Object.entries(selected).filter(([name, value]) => value && name !== "search");
    clear(filters, plural(total, "pod"), words.length ? " where " : "",
      words.map(([name, value]) => h("button", {
        type: "button", class: "chip", title: "remove", onclick: () => filter(name, value),
      }, `${name}: ${value} ×`)));
  }

  function drawTiles(counts) {
    clear(tiles, STATES.filter((state) => counts[state] || SERIES.includes(state)).map((state) => h("button", {
      type: "button", class: "tile", title: HINTS[state], "aria-pressed": String(selected.state === state),
      "data-state": state, onclick: () => filter("state", state),
    }, h("span", { class: "tile-count" }, number(counts[state] ?? 0)), h("span", {}, state))));
  }

  function groupRow(name, value, title, group, most) {
    const states = Object.entries(group.states).map(([state, count]) => `${number(count)} ${state}`).join(", ");
    return h("button", {
      type: "button", class: "group", "aria-pressed": String(selected[name] === value), title: states,
      onclick: () => filter(name, value),
    },
    h("span", { class: "group-title" }, title), bar(group.pods / most, `${plural(group.pods, "pod")}`),
    h("span", { class: "num" }, number(group.pods)),
    h("span", { class: "hint" }, `oldest ${duration(group.oldestSeconds)}`));
  }

  function drawGroups() {
    if (groups === null) return;
    const most = Math.max(1, ...groups.causes.map((each) => each.pods));
    clear(causes, groups.causes.length || groups.otherCauses ? groups.causes.map((each) => groupRow("cause", each.cause, each.cause, each, most)) :
      h("p", { class: "hint" }, "No pod is pending."),
    groups.otherCauses ? h("p", { class: "hint" }, `${plural(groups.otherCauses, "pod")} with causes that none of your pods has`) : null);
    const largest = Math.max(1, ...groups.owners.map((each) => each.pods));
    clear(owners, groups.owners.slice(0, 50).map((each) => groupRow("owner", `${each.namespace}/${each.kind}/${each.name}`,
      `${each.kind} ${each.namespace}/${each.name}`, each, largest)),
    groups.owners.length > 50 ? h("p", { class: "hint" }, "and more; the list below has all pods") : null,
    groups.otherPods ? h("p", { class: "hint" }, `${plural(groups.otherPods, "pod")} of namespaces whose pods you may not get`) : null);
    drawTiles(groups.states);
  }

  // A group that has the focus keeps it when the groups are drawn again.
  function keepingFocus(draw) {
    const active = document.activeElement;
    const parent = [tiles, causes, owners].find((each) => each.contains(active));
    const index = parent === undefined ? -1 : [...parent.children].indexOf(active);
    draw();
    if (index >= 0) parent.children[Math.min(index, parent.children.length - 1)]?.focus();
  }

  async function look() {
    try {
      const [found, trend] = await Promise.all([get("queue", ended.signal), get("trend", ended.signal)]);
      groups = found;
      keepingFocus(drawGroups);
      clear(chart, trendChart(trend));
      await refreshList();
      problem.textContent = "";
    } catch (error) {
      if (error.name === "AbortError") return;
      problem.textContent = error.message;
    }
    if (!ended.signal.aborted) timer = setTimeout(look, EVERY);
  }

  const closeStream = stream("stream?nodes=false", (event, data) => {
    if (event === "queue") {
      context.leading(data.leading);
      if (groups !== null) keepingFocus(() => drawTiles({ ...groups.states, ...data }));
    }
  }, context.connected);
  let timer = 0;
  describe();
  look();
  return {
    close() {
      ended.abort();
      NARROW.removeEventListener("change", arrange);
      clearTimeout(timer);
      clearTimeout(search.timer);
      closeStream();
    },
  };
}
