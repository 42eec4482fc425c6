// The view Pod: where a pod is and why, its decisions, the filters and the scores of the nodes.

import { Failure, get } from "./api.js";
import { completed } from "./completion.js";
import { closeObjects, objectSections } from "./object.js";
import { bar, clear, duration, h, number, nodeLink, plural, podAddress, podGroupLink, podLink, table } from "./dom.js";

const MOST_LISTED = 50;
const AGAIN = 2000; // milliseconds after which a pod that is not known is asked for again

export function podView(content, _context, rest, _query) {
  return namedView(content, rest, {
    id: "pod", label: "Pod", address: podAddress, find: findPods, hint: "Write namespace/name, or choose one of the pods that wait.", listed: waitingPods,
    path: (key) => `pod?pod=${encodeURIComponent(key)}`, details: podDetails,
  });
}

// A view of one object by its namespace and name: a field for the name, and below it the details.
// With `find` the field completes a part of a name. `listed(signal)` returns what to show without a name.
export function namedView(content, rest, { id, label, address, find, hint, listed, path, details }) {
  let now = new AbortController();
  let again = 0;
  const input = h("input", {
    id, autocomplete: "off", spellcheck: "false", placeholder: "namespace/name", required: true, pattern: "[^/]+/[^/]+", value: rest.join("/"),
  });
  const shown = h("div", {});
  const form = h("form", { class: "controls", onsubmit: (event) => {
    event.preventDefault();
    open(input.value.trim());
  } }, find ? completed(input, { label, ask: find, choose: open }) : [h("label", { for: id }, label), input], h("button", { type: "submit" }, "Show"));
  clear(content, form, shown);

  function open(key) {
    if (location.hash === address(key)) show();
    else location.hash = address(key);
  }

  function stop() {
    clearTimeout(again);
    now.abort();
  }

  async function show() {
    stop();
    now = new AbortController();
    const key = input.value.trim();
    if (key === "") {
      clear(shown, h("p", { class: "hint" }, hint));
      input.focus();
      await list(now.signal);
      return;
    }
    clear(shown, h("p", { role: "status" }, "Asking the scheduler …"));
    await ask(key, now.signal);
  }

  async function list(signal) {
    try {
      shown.append(await listed(signal));
    } catch (error) {
      if (signal.aborted) return;
      shown.append(h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  // What has just been created is known a moment later.
  async function ask(key, signal) {
    try {
      const found = await get(path(key), signal);
      clear(shown, details(found));
    } catch (error) {
      if (signal.aborted) return;
      const unknown = error instanceof Failure && error.status === 404;
      const words = unknown ? `${error.message}; asking again every ${AGAIN / 1000} seconds` : error.message;
      if (shown.textContent !== words) clear(shown, h("p", { class: "error", role: "alert" }, words));
      if (unknown) again = setTimeout(() => ask(key, signal), AGAIN);
    }
  }

  show();
  return {
    close: stop,
    escape: () => closeObjects(content),
    update(parts) {
      input.value = parts.join("/");
      show();
    },
  };
}

async function waitingPods(signal) {
  const { pods: found, total } = await get(`pods?offset=0&limit=${MOST_LISTED}`, signal);
  if (!found.length) return h("p", {}, "No pod waits.");
  return h("section", {}, table(["pod", "state", "cause", "pending"], found.map((each) => [
    podLink(each.pod), each.state, each.cause, duration(each.pendingSeconds),
  ]), "Pods that wait"), total > found.length ? h("p", { class: "hint" }, `and ${number(total - found.length)} more, in the view Queue`) : null);
}

// The pods that have the text in their names, for a field that completes it.
export async function findPods(text, signal) {
  const { pods: found, more } = await get(`find?text=${encodeURIComponent(text)}`, signal);
  return { found: found.map((each) => ({ value: each.pod, hint: each.node === null ? "pending" : `on ${each.node}` })), more };
}

export const pods = (keys) => keys.map((key, index) => [index ? ", " : "", key.includes(" ") ? key : podLink(key)]).flat();

function podDetails(found) {
  const { report, decisions } = found;
  return [
    h("h2", { class: "title" }, found.pod),
    report === null ? h("p", {}, "It is not known to this replica any more; these are the last decisions about it.") :
      h("p", { class: "state", id: "state" }, state(report)),
    report === null ? null : cause(report, decisions[0]),
    report?.claims ? claimsPanel(report.claims, report.heldBack) : null,
    found.path === null ? null : timeline(found.path),
    report === null ? null : objectSections(found.pod),
    decisionSection(found.now, report?.node),
    h("section", {}, h("h2", {}, "Decisions"), decisions.length ? decisions.map(record) :
      h("p", { class: "hint" }, "None is kept by this replica.")),
  ];
}

function state(report) {
  const words = [h("strong", {}, report.state)];
  if (report.node) words.push(" on ", nodeLink(report.node));
  if (report.nominatedNode) {
    words.push(", nominated to ", nodeLink(report.nominatedNode), ", where it will be tried ",
      report.victims?.length ? ["once ", pods(report.victims), ` ${report.victims.length === 1 ? "has" : "have"} left it`] : "next");
  }
  if (report.group) words.push(", a member of pod group ", podGroupLink(report.group.podGroup));
  if (report.profile) words.push(`, profile ${report.profile}`);
  if (report.heldBack) words.push(`, held back${report.plugins.length ? ` by ${report.plugins.join(", ")}` : ""}: ${report.heldBack}`);
  if (report.pendingSeconds !== undefined) words.push(`, pending for ${duration(report.pendingSeconds)}`);
  if (report.attempts) words.push(`, ${plural(report.attempts, "attempt")}`);
  if (report.backoffSeconds !== undefined) words.push(`, tried again in ${duration(report.backoffSeconds)}`);
  if (report.ahead !== undefined) words.push(`, ${plural(report.ahead, "pod")} ahead of it`);
  for (const [plugin, seconds] of Object.entries(report.waitsFor ?? {})) {
    words.push(`, waits for plugin ${plugin} at most ${duration(seconds)} more`);
  }
  return words;
}

// What keeps the pod without a node, and the changes with which it, or its group, would fit.
function cause(report, decision) {
  const group = report.node ? null : report.group;
  return causePanel(report.cause, report.suggestions, group?.message ?? decision?.message, group?.remedy, group ? "The group would fit" : "It would fit");
}

// `remedy` is what must be done first; then nothing else is tried.
export function causePanel(cause, suggestions, message, remedy, title) {
  if (!suggestions && !message && !remedy) return null;
  const fits = remedy || !suggestions ? null :
    suggestions.length ? [h("h3", {}, title), suggestionList(suggestions)] :
      h("p", {}, "None of the changes that were tried would make it fit.");
  return h("section", { class: "panel", id: "cause" },
    h("h2", {}, cause && suggestions && !remedy ? `Cause: ${cause}` : "Why it has no node"),
    message ? h("p", {}, message) : null,
    remedy ? h("p", {}, h("strong", {}, "What helps: "), remedy) : null, fits);
}

// The pod's ResourceClaims, and what keeps each of their requests from devices.
function claimsPanel(found, said) {
  return h("section", { class: "panel", id: "claims" }, h("h2", {}, "Claims for devices"),
    found.error && found.error !== said ? h("p", { class: "error" }, found.error) : null,
    found.claims.map((claim) => [
      h("h3", {}, claim.claim === null || claim.claim === claim.name ? claim.name : `${claim.name} (${claim.claim})`),
      h("p", {}, claim.state),
      claim.requests.map((request) => [
        h("p", {}, `Request ${request.request}: ${plural(request.count, "device")}; enough on ${number(request.enoughOn)} of ${plural(found.nodes, "node")}`),
        request.excluded.length ? table(["excluded by", "devices", "on nodes"], request.excluded.map((each) => [
          each.reason, number(each.devices), number(each.nodes),
        ]), `Devices that request ${request.request} does not get`) : null,
      ]),
    ]),
    found.nodes && found.nodes < found.nodesInAll ? h("p", { class: "hint" },
      `Devices of ${number(found.nodes)} of ${plural(found.nodesInAll, "node")} were looked at.`) : null);
}

const STEPS = {
  seen: () => ["seen without a node"],
  noProfile: () => ["no profile takes it"],
  gated: (step) => [`held back before the queue${step.plugins.length ? ` by ${step.plugins.join(", ")}` : ""}`],
  queued: () => ["in the queue"],
  unschedulable: (step) => ["no node: ", step.cause],
  nominated: (step) => ["nominated to ", nodeLink(step.node), step.victims.length ? "; victims: " : "", pods(step.victims),
    step.victimsInAll > step.victims.length ? ` and ${number(step.victimsInAll - step.victims.length)} more` : ""],
  preemptionFailed: (step) => ["the evictions were given up: ", step.cause],
  assumed: (step) => ["an attempt chose ", nodeLink(step.node)],
  waitingAtPermit: (step) => ["waits at Permit on ", nodeLink(step.node), ` for ${step.plugins.join(", ")}`],
  rejected: (step) => [`rejected by ${step.plugins.join(", ") || "a plugin"}: `, step.cause],
  error: (step) => ["error: ", step.cause],
  bound: (step) => ["bound to ", nodeLink(step.node)],
  preempted: (step) => ["evicted from ", nodeLink(step.node), " for ", pods([step.by]), step.cause ? `: ${step.cause}` : ""],
  gone: () => ["deleted, ended, or bound by another scheduler"],
};

// What happened to the pod, and how long it was in each state.
function timeline(path) {
  const states = Object.entries(path.seconds);
  const total = states.reduce((sum, [, seconds]) => sum + seconds, 0);
  const time = (text) => h("time", { datetime: text }, new Date(text).toLocaleTimeString());
  return h("section", { class: "panel" }, h("h2", {}, "What happened"),
    states.length ? h("dl", { class: "states" }, states.map(([state, seconds]) => h("div", {},
      h("dt", {}, state), h("dd", {}, bar(total ? seconds / total : 0, `${duration(seconds)} ${state}`), ` ${duration(seconds)}`)))) : null,
    h("ol", { class: "timeline", id: "timeline" }, path.steps.map((step, index) => [
      path.leftOut && index === 4 ? h("li", { class: "hint" }, `${plural(path.leftOut, "step")} left out`) : null,
      h("li", { "data-step": step.step }, time(step.time), step.count > 1 ? [" to ", time(step.until)] : null, " ",
        (STEPS[step.step] ?? (() => [step.step]))(step), step.count > 1 ? ` (${number(step.count)} times)` : ""),
    ])));
}

export function suggestionList(suggestions) {
  return h("ul", { class: "suggestions" }, suggestions.map((each) => {
    const more = each.nodes - each.examples.length;
    const where = each.ended.length ? [] : [
      "on ", each.examples.map((name, index) => [index ? ", " : "", nodeLink(name)]).flat(),
      more > 0 ? ` and ${plural(more, "other node")}` : "", ", ",
    ].flat();
    return h("li", {}, where, each.change);
  }));
}

export function decisionSection(decision, current) {
  if (decision === null || decision === undefined) return null;
  const chosen = decision.node;
  const rejected = Object.entries(decision.rejections);
  return h("section", { class: "panel" },
    h("h2", {}, current ? "Where it would go now" : "A decision now"),
    chosen ? h("p", { class: "verdict" }, "→ ", nodeLink(chosen), `, one of ${plural(decision.feasible, "feasible node")}`) :
      h("p", { class: "verdict" }, decision.message),
    decision.nominatedNode ? h("p", {}, "Preemption would nominate it to ", nodeLink(decision.nominatedNode),
      decision.victims.length ? [" and evict ", pods(decision.victims)] : "") : null,
    funnel(decision),
    scoreTable(decision, chosen),
    rejected.length ? h("details", {}, h("summary", {}, "Some of the rejected nodes"),
      table(["node", "plugin", "why"], rejected.map(([node, each]) => [
        nodeLink(node), each.plugin, each.reasons.join(", "),
      ]), "Rejected nodes")) : null);
}

function funnel(decision) {
  if (decision.preFilter !== null) {
    return h("p", {}, `Rejected for all nodes by ${decision.preFilter.plugins.join(", ") || "PreFilter"}: ${decision.preFilter.reason ?? ""}`);
  }
  const step = (name, left, words, reasons) => h("li", { class: words ? "funnel-step rejects" : "funnel-step" },
    h("span", { class: "funnel-name" }, name),
    bar(decision.nodes ? left / decision.nodes : 0, `${plural(left, "node")} left`),
    h("span", { class: "num" }, number(left)), h("span", { class: "funnel-why" }, words,
      reasons.length ? h("ul", {}, reasons.map((each) => h("li", {}, `${number(each.nodes)} ${each.reason}`))) : null));
  return [
    h("h3", {}, "Nodes left after each filter"),
    h("ol", { class: "funnel", id: "funnel" }, step("all nodes", decision.nodes, "", []),
      decision.filters.map((each) => step(each.plugin, each.left, each.rejected ? `rejects ${number(each.rejected)}` : "", each.reasons))),
  ];
}

function scoreTable(decision, chosen) {
  const scores = Object.entries(decision.scores ?? {}).map(([node, score]) => ({ node, ...score }))
    .sort((one, other) => other.total - one.total); // names of digits would come first else
  if (!scores.length) return null;
  const plugins = [...new Set(scores.flatMap((each) => Object.keys(each.plugins)))];
  const equal = scores.filter((each) => each.total === scores.find((other) => other.node === chosen)?.total);
  const more = equal.length === scores.length && (decision.truncated?.scores ?? decision.feasible ?? 0) > scores.length;
  return [
    h("h3", {}, `Scores of ${scores.length === 1 ? "the node" : `the ${scores.length} best nodes`}`),
    equal.length > 1 ? h("p", { class: "hint" }, `A tie of ${more ? "at least " : ""}${number(equal.length)}: one of them is chosen at random.`) : null,
    table(["node", "total", ...plugins], scores.map((each) => [
      each.node === chosen ? h("strong", {}, nodeLink(each.node)) : nodeLink(each.node), String(each.total),
      ...plugins.map((plugin) => String(each.plugins[plugin] ?? "–")),
    ]), "Scores"),
  ];
}

function record(decision) {
  const outcome = decision.node ? ["on ", nodeLink(decision.node)] : ["no node"];
  return h("details", { class: "record" },
    h("summary", {}, h("time", { datetime: decision.time }, new Date(decision.time).toLocaleString()), " ", outcome,
      decision.count > 1 ? ` (${number(decision.count)} attempts with this cause)` : "",
      decision.cause ? `: ${decision.cause}` : ""),
    decision.message ? h("p", {}, decision.message) : null,
    decision.nominatedNode ? h("p", {}, "Nominated to ", nodeLink(decision.nominatedNode),
      decision.victims.length ? ["; victims: ", pods(decision.victims)] : "") : null,
    scoreTable(decision, decision.node),
    h("p", { class: "hint" }, `profile ${decision.profile ?? "none"}${decision.profileGeneration ? `, generation ${decision.profileGeneration}` : ""}${decision.kubernetesVersion ? `, Kubernetes ${decision.kubernetesVersion}` : ""}`));
}
