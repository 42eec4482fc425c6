// The view Rebalancing: the last plan of each profile, the nodes before and after it, and plans made now.

import { get, post } from "./api.js";
import { bar, clear, h, nodeLink, number, plural, podLink, table } from "./dom.js";

const GOALS = {
  Violations: "pods whose node does not meet what is required by now",
  Spread: "pods for which another node has a higher score",
  Pack: "nodes with little on them are emptied",
  MakeRoom: "pods and groups that wait fit afterwards",
};
const EXCLUDED = { Spread: "Pack", Pack: "Spread" };
const HIDDEN = "a pod that you may not get";

export function rebalancingView(content, context) {
  const ended = new AbortController();
  const problem = h("p", { class: "error", role: "alert" });
  const shown = h("div", {});
  const made = h("div", { id: "made", "aria-live": "polite", tabindex: "-1" });
  const profile = h("select", { id: "plan-profile" });
  const boxes = Object.keys(GOALS).map((goal) => h("input", { type: "checkbox", id: `goal-${goal}`, value: goal, onchange: (event) => {
    const other = boxes.find((box) => box.value === EXCLUDED[goal]);
    if (event.target.checked && other !== undefined) other.checked = false;
  } }));
  const button = h("button", { type: "submit", id: "plan", disabled: true }, "Plan now");
  const refresh = h("button", { type: "button", class: "quiet", onclick: () => load() }, "Refresh");
  const form = h("form", { class: "panel", onsubmit: (event) => {
    event.preventDefault();
    plan();
  } },
  h("h2", {}, "Plan moves"),
  h("div", { class: "controls" }, h("label", { for: "plan-profile" }, "Profile ", profile),
    boxes.map((box) => h("label", { for: box.id, title: GOALS[box.value] }, box, box.value)), button),
  h("p", { class: "hint" }, "Without a goal, for those of the profile. Nothing is moved."));
  clear(content,
    h("p", { class: "hint" }, "Where running pods would be placed today, if that is better than where they are."),
    context.session.mayTry ? form : null, made, h("div", { class: "controls" }, refresh), problem, shown);

  async function load() {
    try {
      const { profiles } = await get("rebalancing", ended.signal);
      const before = profile.value;
      clear(profile, profiles.map((each) => h("option", { value: each.profile }, each.profile)));
      if (profiles.some((each) => each.profile === before)) profile.value = before;
      button.disabled = !profiles.length;
      clear(shown, ...latest(profiles));
      problem.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") problem.textContent = error.message;
    }
  }

  async function plan() {
    button.disabled = true;
    clear(made, h("p", { role: "status" }, "Planning …"));
    try {
      const found = await post("plan", { profile: profile.value, goals: boxes.filter((box) => box.checked).map((box) => box.value) }, ended.signal);
      clear(made, h("section", {}, h("h2", {}, "The plan"), planned(found)));
      made.focus();
    } catch (error) {
      if (error.name === "AbortError") return;
      clear(made, h("div", { class: "panel error", role: "alert" }, error.message.split("\n").map((line) => h("p", {}, line))));
    }
    button.disabled = false;
  }

  load();
  return { close: () => ended.abort(), update() {} };
}

function latest(profiles) {
  const rebalanced = profiles.filter((each) => each.mode !== null);
  if (!rebalanced.length) {
    return [h("p", { class: "hint" }, "No profile in force has a section ", h("code", {}, "rebalancing"), ": no pod is moved.")];
  }
  return rebalanced.map((each) => h("section", { class: "plan" },
    h("h2", {}, each.profile, " ", h("span", { class: "badge" }, each.mode === "Apply" ? "applied" : "plan only")),
    h("p", {}, `Goals: ${each.goals.join(", ")}. ${each.done ? `${plural(each.done, "pod")} moved so far. ` : ""}`),
    each.message ? h("p", { class: "message" }, each.message) : null,
    underWay(each.underWay),
    each.latest === null ? h("p", { class: "hint" }, "No plan has been made yet; the leading replica makes them.") : planned(each.latest)));
}

function underWay(steps) {
  const moves = steps.flatMap((step) => step.moves);
  return moves.length ? h("ul", {}, moves.map((move) => h("li", {}, "under way: ", named(move.pod), " from ", nodeLink(move.from), " to ", nodeLink(move.to)))) : null;
}

function planned(report) {
  const moves = report.moves ? `${plural(report.moves, "move")} in ${plural(report.steps.length, "step")}` : `${report.spent ? "no move was found" : "nothing to move"}${report.message ? `: ${report.message}` : ""}`;
  return h("div", {},
    h("p", { class: "verdict" }, h("strong", {}, moves), " (",
      h("time", { datetime: report.time }, new Date(report.time).toLocaleString()), `, ${plural(report.pods, "running pod")})`),
    sums(report),
    report.nodes.length ? [h("h3", {}, "Nodes before and after"), nodes(report)] : null,
    report.steps.length ? [h("h3", {}, "Moves, in their order"), steps(report)] : null,
    refused(report));
}

function sums(report) {
  const parts = [];
  if (report.more) parts.push(h("li", {}, "this is as much as limits.movesPerPlan allows; there may be more"));
  if (report.spent) parts.push(h("li", {}, leftOut(report)));
  if (report.violations) parts.push(h("li", {}, `${plural(report.violations, "violation")} mended`));
  if (report.emptied.length) parts.push(h("li", {}, `${plural(report.emptied.length, "node")} emptied: `, spaced(report.emptied.map(nodeLink))));
  if (report.fits.length) parts.push(h("li", {}, `${plural(report.fits.length, "pending pod")} that ${report.fits.length === 1 ? "fits" : "fit"} afterwards: `, spaced(report.fits.map(named))));
  return parts.length ? h("ul", {}, parts) : null;
}

// The command may decide more often than a plan of the page or of the leader.
function leftOut(report) {
  const lookedAt = report.examined < report.pods ? `, at ${plural(report.examined, "pod")} only` : "";
  return `not all was looked at${lookedAt}, because the decisions that a plan may cost were spent; plan for fewer goals, or with mooring rebalance, which may decide more often`;
}

const spaced = (links) => links.flatMap((link, index) => (index ? [", ", link] : [link]));

const named = (pod) => (pod === HIDDEN ? h("span", { class: "hint" }, pod) : podLink(pod));

function nodes(report) {
  const emptied = new Set(report.emptied);
  return table(["node", "before", "after"], report.nodes.map((each) => [
    h("span", {}, nodeLink(each.node), emptied.has(each.node) ? [" ", h("span", { class: "badge good" }, "emptied")] : null),
    used(each.before), used(each.after),
  ]), "Nodes before and after");
}

// The larger share is the bar, because it is what a node runs out of first.
function used(use) {
  const text = `${plural(use.pods, "pod")}, cpu ${number(Math.round(use.cpu))} %, memory ${number(Math.round(use.memory))} %`;
  return h("div", { class: "use" }, bar(Math.max(use.cpu, use.memory) / 100, text), h("span", { class: "hint" }, text));
}

function steps(report) {
  const rows = report.steps.flatMap((step, index) => step.moves.map((move, first) => [
    first ? "" : number(index + 1), named(move.pod), nodeLink(move.from), nodeLink(move.to),
    first ? "" : number(step.gain), first ? "" : step.reason,
  ]));
  return table(["step", "pod", "from", "to", "gain", "why"], rows, "Moves");
}

function refused(report) {
  if (!report.refused.length) return null;
  const total = report.refused.reduce((sum, each) => sum + each.pods, 0);
  return h("details", { class: "record" }, h("summary", {}, `${plural(total, "pod")} would gain, and ${total === 1 ? "is" : "are"} not moved`),
    h("ul", {}, report.refused.map((each) => h("li", {}, `${number(each.pods)}: the pod ${each.reason}`))));
}
