// The view Pod group: what a group waits for, where each member is, and the last attempt about it.

import { get } from "./api.js";
import { duration, h, nodeLink, number, plural, podGroupAddress, podGroupLink, podLink, table } from "./dom.js";
import { causePanel, namedView, pods } from "./pod.js";

export function podGroupView(content, _context, rest, _query) {
  return namedView(content, rest, {
    id: "podgroup", label: "Pod group", address: podGroupAddress, hint: "Write namespace/name, or choose one of the groups that wait.", listed: waitingGroups,
    path: (key) => `podgroup?podgroup=${encodeURIComponent(key)}`,
    details: (found) => [h("h2", { class: "title" }, found.podGroup), found.podGroups.map(groupDetails)],
  });
}

async function waitingGroups(signal) {
  const { owners } = await get("queue", signal);
  const groups = owners.filter((each) => each.kind === "PodGroup");
  if (!groups.length) return h("p", {}, "No pod group waits.");
  return table(["pod group", "members that wait", "the oldest for"], groups.map((each) => [
    podGroupLink(`${each.namespace}/${each.name}`), number(each.pods), duration(each.oldestSeconds),
  ]), "Pod groups that wait");
}

function groupDetails(group) {
  return h("div", {},
    h("p", { class: "state" }, state(group)),
    group.scheduled && !group.suggestions?.length ? null :
      causePanel(group.cause, group.suggestions, group.message, group.remedy, "It would fit"),
    group.victims ? h("p", {}, "Its members will be tried once these pods have left: ", pods(group.victims)) : null,
    members(group), attempt(group.decision, group.message ?? ""));
}

function state(group) {
  const words = [h("strong", {}, group.phase), `, ${group.source}, priority ${number(group.priority)}`];
  if (group.minimum !== null) words.push(`, at least ${plural(group.minimum, "member")} together`);
  if (group.missing) words.push(", ", h("strong", {}, `${number(group.missing)} missing`));
  if (group.topology) words.push(`, in one domain of ${group.topology.keys.join(" > ")} (${group.topology.mode})`);
  if (group.reserved) words.push(`; ${group.reserved}`);
  return words;
}

function members(group) {
  const all = Object.values(group.members).reduce((sum, count) => sum + count, 0);
  const words = Object.entries(group.members).filter(([, count]) => count).map(([name, count]) => `${number(count)} ${name}`);
  const told = group.pods.some((pod) => pod.message);
  return h("section", { class: "panel", id: "members" }, h("h2", {}, "Members"),
    h("p", {}, words.join(", ") || "None exists."),
    group.pods.length ? table(["pod", "state", "node", ...(told ? ["message"] : [])], group.pods.map((pod) => [
      podLink(pod.pod), pod.state, pod.node === null ? "–" : nodeLink(pod.node), ...(told ? [pod.message ?? ""] : []),
    ]), "Members") : null,
    all > group.pods.length && group.pods.length ? h("p", { class: "hint" }, `Of ${number(all)} members these are ${number(group.pods.length)}, those without a node first.`) : null);
}

// The domains that were tried, and how many members fitted there.
function attempt(decision, told) {
  if (decision === null) return h("p", { class: "hint" }, "The group has not been tried yet by this replica.");
  const where = decision.domain === null ? "" : ` in ${decision.domain.join("=")}`;
  return h("section", { class: "panel", id: "attempt" }, h("h2", {}, "The last attempt"),
    h("p", {}, h("time", { datetime: decision.time }, new Date(decision.time).toLocaleString()),
      decision.placed ? `: ${plural(decision.placed, "member")} placed${where}` : ": not placed",
      `, ${plural(decision.tries, "placement")} tried`),
    decision.message && !told.includes(decision.message) ? h("p", {}, decision.message) : null,
    decision.bounded && !decision.placed ? h("p", {}, "Not all placements could be tried: one may exist that was not found.") : null,
    decision.tried.length ? table(["domain", "members that fit", "why not more"], decision.tried.map((tried) => [
      `${tried.key}=${tried.value}`, number(tried.fits), tried.message,
    ]), "Domains that were tried") : null,
    decision.triedInAll > decision.tried.length && decision.tried.length ?
      h("p", { class: "hint" }, `Of ${number(decision.triedInAll)} domains these are the ones kept.`) : null);
}
