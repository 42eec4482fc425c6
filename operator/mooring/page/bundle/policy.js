// The view Policy: profiles in force, what became of each generation, and shadow profiles.

import { get } from "./api.js";
import { bar, clear, h, nodeLink, number, plural, podLink, table } from "./dom.js";
import { toYaml } from "./yaml.js";

const RESULTS = ["same", "tied", "different", "rejected", "unschedulable"];
const MEANINGS = {
  same: "both chose this node",
  tied: "nodes of equal score",
  different: "the profile's node has a higher score",
  rejected: "the profile rejects the pod's node",
  unschedulable: "the profile finds no node",
};

export function policyView(content, context) {
  const ended = new AbortController();
  const refresh = h("button", { type: "button", class: "quiet", onclick: () => load() }, "Refresh");
  const problem = h("p", { class: "error", role: "alert" });
  const shown = h("div", {});
  clear(content, h("div", { class: "controls" }, refresh), problem, shown);

  async function load() {
    try {
      clear(shown, ...view(await get("policy", ended.signal), context.session.mayTry));
      problem.textContent = "";
    } catch (error) {
      if (error.name !== "AbortError") problem.textContent = error.message;
    }
  }

  load();
  return { close: () => ended.abort(), update() {} };
}

function view(found, mayTry) {
  return [
    h("section", {}, h("h2", {}, plural(found.profiles.length, "profile")), found.profiles.map((each) => profile(each, found.shadow[each.name], mayTry))),
    found.compared.length ? h("section", {}, h("h2", {}, "What shadow profiles decided"),
      table(["pod", "result", "bound to", "the profile's node", "why"], found.compared.map((each) => [
        podLink(each.pod), h("span", { title: MEANINGS[each.result] ?? "" }, each.result),
        each.boundNode ? nodeLink(each.boundNode) : "–", each.node ? nodeLink(each.node) : "–", each.message ?? "",
      ]), "Comparisons")) : null,
    h("section", {}, h("h2", {}, "History"), found.history.length ? found.history.map((each, index) =>
      change(each, found.history.slice(index + 1).find((earlier) => earlier.profile === each.profile))) :
      h("p", { class: "hint" }, "This replica has seen no profile since it leads.")),
  ];
}

function profile(each, shadow, mayTry) {
  const { status, effective } = each;
  const ready = status === null || status.ready;
  return h("article", { class: "panel profile" },
    h("h3", {}, each.name, " ", h("span", { class: ready ? "badge good" : "badge bad" }, ready ? (each.mode === "Shadow" ? "shadow" : "in force") : status.reason)),
    status === null ? null : h("p", { class: ready ? "" : "error" }, status.message),
    !ready && each.generation ? h("p", {}, `Generation ${each.generation} stays in force.`) : null,
    each.conflict ? h("p", { class: "error" }, `Conflict: ${each.conflict}.`) : null,
    effective === null ? null : h("details", {}, h("summary", {}, "Plugins in force"),
      table(["extension point", "plugins, in the order they run"], Object.entries(effective.plugins).map(([point, plugins]) => [
        point, plugins.map((plugin) => (plugin.weight === undefined ? plugin.name : `${plugin.name} (weight ${plugin.weight})`)).join(", "),
      ]), `Plugins of ${each.name}`)),
    each.spec === null ? null : h("details", {}, h("summary", {}, "Spec"), h("pre", { tabindex: "0" }, toYaml(each.spec))),
    each.spec === null || !mayTry ? null : h("p", {}, h("a", { href: `#/try?${new URLSearchParams({ profile: each.name })}` }, "Try a change of it")),
    shadow === undefined ? null : differences(shadow));
}

function differences(shadow) {
  const most = Math.max(1, shadow.compared);
  return h("div", {}, h("p", {}, `${plural(shadow.compared, "pod")} compared since ${new Date(shadow.since).toLocaleString()}.`),
    table(["result", "pods", ""], RESULTS.map((result) => [
      h("span", { title: MEANINGS[result] }, `${result}: ${MEANINGS[result]}`), number(shadow[result]), bar(shadow[result] / most, `${shadow[result]} pods`),
    ]), "How the shadow profile differs"),
    h("p", { class: "hint" }, `Utilization of the chosen nodes: ${shadow.boundUtilizationPercent} % bound, `,
      `${shadow.shadowUtilizationPercent} % shadow; balance: ${shadow.boundBalancePercent} % bound, ${shadow.shadowBalancePercent} % shadow.`));
}

function change(entry, earlier) {
  const lines = entry.spec === null ? [] : compared(
    earlier?.spec === null || earlier === undefined ? [] : textLines(earlier.spec), textLines(entry.spec));
  return h("details", { class: "record" },
    h("summary", {}, h("time", { datetime: entry.time }, new Date(entry.time).toLocaleString()),
      ` ${entry.profile}, generation ${entry.generation}: `, h("span", { class: entry.ready ? "" : "error" }, entry.reason)),
    h("p", {}, entry.message),
    lines.length ? h("pre", { class: "diff" }, lines.map(([sign, line]) => h("span", {
      class: sign === "+" ? "plus" : sign === "-" ? "minus" : "",
    }, `${sign} ${line}\n`))) : null);
}

function textLines(spec) {
  return toYaml(spec).trimEnd().split("\n");
}

// Lines with "+", "-" or " " in front, by the longest common part; whole texts if they are long.
function compared(before, after) {
  if (before.length * after.length > 250000) return after.map((line) => [" ", line]);
  const longest = Array.from({ length: before.length + 1 }, () => new Uint16Array(after.length + 1));
  for (let i = before.length - 1; i >= 0; i--) {
    for (let j = after.length - 1; j >= 0; j--) {
      longest[i][j] = before[i] === after[j] ? longest[i + 1][j + 1] + 1 : Math.max(longest[i + 1][j], longest[i][j + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < before.length || j < after.length) {
    if (i < before.length && j < after.length && before[i] === after[j]) {
      lines.push([" ", after[j]]);
      i += 1;
      j += 1;
    } else if (j >= after.length || (i < before.length && longest[i + 1][j] >= longest[i][j + 1])) {
      lines.push(["-", before[i]]);
      i += 1;
    } else {
      lines.push(["+", after[j]]);
      j += 1;
    }
  }
  return lines;
}
