// The view Try it: decisions about pods that do not exist, or with other profiles, without changes.

import { get, post } from "./api.js";
import { clear, h, nodeLink, number, plural, podLink, table } from "./dom.js";
import { decisionSection, suggestionList } from "./pod.js";
import { toYaml } from "./yaml.js";

const EXAMPLE = `apiVersion: v1
kind: Pod
metadata:
  name: example
spec:
  containers:
    - name: main
      image: example
      resources:
        requests: {cpu: "1", memory: 1Gi}
`;
const PROFILE = `apiVersion: scheduling.mooring.dev/v1alpha1
kind: SchedulingProfile
metadata:
  name: edited
spec: {}
`;
const KEPT = "mooring-try"; // what was typed stays in the tab

export function tryView(content, context, _rest, query) {
  const kept = JSON.parse(sessionStorage.getItem(KEPT) ?? "{}");
  let now = new AbortController();
  let known = []; // profiles
  if (!context.session.mayTry) {
    clear(content, h("p", { class: "error", role: "alert" },
      `${context.session.user} may not post to /ui/api/try; the ClusterRole mooring-page-try allows it.`));
    return { close() {} };
  }
  const manifests = h("textarea", { id: "manifests", rows: "16", spellcheck: "false", value: kept.manifests ?? EXAMPLE, oninput: keep });
  const profile = h("select", { id: "profile", onchange: () => chosen() });
  const text = h("textarea", {
    id: "profile-text", rows: "16", spellcheck: "false", value: kept.text ?? PROFILE, oninput: keep,
  });
  const editor = h("div", { hidden: true },
    h("label", { for: "profile-text" }, "The edited profile: a SchedulingProfile, a KubeSchedulerConfiguration or a Policy"), text);
  const first = h("select", { id: "first" });
  const second = h("select", { id: "second" });
  const which = h("select", { id: "which" },
    h("option", { value: "pending" }, "pending pods"), h("option", { value: "running" }, "running pods, placed anew"));
  const namespace = h("input", { id: "namespace", placeholder: "all", autocomplete: "off", value: kept.namespace ?? "", oninput: keep });
  const result = h("div", { id: "result", "aria-live": "polite", tabindex: "-1" });
  const tryButton = h("button", { type: "submit", id: "try", disabled: true }, "Try");
  const compareButton = h("button", { type: "submit", id: "compare", disabled: true }, "Compare");

  const editButton = (select) => h("button", { type: "button", class: "quiet", id: `edit-${select.id}`, onclick: () => edit(select) }, "Edit");
  const tryForm = h("form", { class: "panel", onsubmit: (event) => {
    event.preventDefault();
    ask(tryButton, "try", {
      manifests: manifests.value,
      profile: edited(profile) ? "" : profile.value,
      profile_text: edited(profile) ? text.value : "",
    }, tried);
  } },
  h("h2", {}, "Try a pod"),
  h("label", { for: "manifests" }, "A Pod, a Deployment, a Job or a PodGroup with its pods, as YAML"), manifests,
  h("div", { class: "controls" }, h("label", { for: "profile" }, "Profile ", profile), editButton(profile), tryButton), editor);

  const compareForm = h("form", { class: "panel", onsubmit: (event) => {
    event.preventDefault();
    ask(compareButton, "compare", {
      profile: first.value,
      other: edited(second) ? "" : second.value,
      other_text: edited(second) ? text.value : "",
      namespace: namespace.value.trim(),
      running: which.value === "running",
    }, compared);
  } },
  h("h2", {}, "Compare two profiles"),
  h("div", { class: "controls" },
    h("label", { for: "first" }, "Profile ", first), h("label", { for: "second" }, "with ", second), editButton(second),
    h("label", { for: "which" }, "for ", which), h("label", { for: "namespace" }, "of namespace ", namespace), compareButton),
  h("p", { class: "hint" }, "The first 100 pods in the order of the queue, each on the cluster as it is with those before it. ",
    "For all pods of a cluster there is ", h("code", {}, "mooring simulate --compare"), "."));

  clear(content, h("p", { class: "hint" }, "Decisions on the live state, in which nothing is changed. Extenders are not called."),
    h("div", { class: "columns" }, tryForm, compareForm), result);

  const edited = (select) => select.value === "\u0000edited";

  function keep() {
    sessionStorage.setItem(KEPT, JSON.stringify({ manifests: manifests.value, text: text.value, namespace: namespace.value }));
  }

  function chosen() {
    editor.hidden = !edited(profile) && !edited(second);
  }

  // Puts the chosen profile into the editor, and chooses what is edited there.
  function edit(select) {
    const chosenOne = known.find((each) => each.name === select.value && each.spec !== null) ??
      (edited(select) ? undefined : known.find((each) => each.mode === "Active"));
    if (chosenOne !== undefined) {
      text.value = written(chosenOne);
      keep();
    }
    select.value = "\u0000edited";
    chosen();
    text.focus();
  }

  async function profiles() {
    try {
      known = (await get("policy", now.signal)).profiles;
      const names = known.filter((each) => each.generation || each.effective).map((each) => each.name);
      const options = () => names.map((name) => h("option", { value: name }, name));
      const editing = () => h("option", { value: "\u0000edited" }, "the profile edited here");
      clear(profile, h("option", { value: "" }, "the one that takes the pod"), options(), editing());
      clear(first, options());
      clear(second, options(), editing());
      second.onchange = chosen;
      if (names.length < 2) second.value = "\u0000edited";
      const shown = known.find((each) => each.spec !== null);
      if (kept.text === undefined && shown !== undefined) text.value = written(shown);
      const scheduler = known.find((each) => each.mode === "Active")?.effective.schedulerNames[0];
      const untouched = manifests.value === EXAMPLE && document.activeElement !== manifests; // nobody works in it yet
      if (untouched && scheduler !== undefined && scheduler !== "default-scheduler") {
        manifests.value = EXAMPLE.replace("spec:\n", `spec:\n  schedulerName: ${scheduler}\n`);
      }
      chosen();
      const wanted = query.get("profile");
      if (names.includes(wanted)) {
        profile.value = wanted;
        edit(profile);
      }
      tryButton.disabled = false;
      compareButton.disabled = false;
    } catch (error) {
      if (error.name !== "AbortError") clear(result, h("p", { class: "error", role: "alert" }, error.message));
    }
  }

  async function ask(button, path, body, show) {
    now.abort();
    now = new AbortController();
    button.disabled = true;
    clear(result, h("p", { role: "status" }, "The scheduler decides …"));
    try {
      clear(result, show(await post(path, body, now.signal)));
      result.focus();
    } catch (error) {
      if (error.name !== "AbortError") {
        clear(result, h("div", { class: "panel error", role: "alert" }, error.message.split("\n").map((line) => h("p", {}, line))));
      }
    }
    button.disabled = false;
  }

  profiles();
  return { close: () => now.abort(), update() {} };
}

// A profile as text to edit.
function written(profile) {
  return toYaml({
    apiVersion: "scheduling.mooring.dev/v1alpha1", kind: "SchedulingProfile",
    metadata: { name: "edited" }, spec: profile.spec,
  });
}

function tried(found) {
  const rows = found.decisions.flatMap((decision) => decision.pods.map((each) => ({ ...each, decision })));
  const placed = rows.filter((each) => each.node !== null).length;
  const why = ({ node, decision }) => (node === null ? decision.message ?? "" : "");
  return [
    h("h2", { id: "verdict" }, placed === rows.length ? `${plural(placed, "pod")} would get a node` :
      `${number(placed)} of ${plural(rows.length, "pod")} would get a node`),
    found.more ? h("p", { class: "hint" }, `The text makes more pods; the first ${number(rows.length)} are decided.`) : null,
    found.notes.map((note) => h("p", { class: "hint" }, note)),
    rows.length > 1 ? h("section", { class: "panel" }, table(["pod", "profile", "node", "why"], rows.map((each) => [
      each.pod, each.decision.profile ?? "–", each.node === null ? "–" : nodeLink(each.node), why(each),
    ]), "Decisions")) : rows[0].node === null ? h("p", { class: "verdict", id: "why" }, why(rows[0])) : null,
    found.decisions.filter((decision) => decision.suggestions?.length).map((decision, index) =>
      h("section", { class: "panel", id: index ? `cause-${index}` : "cause" }, h("h2", {}, `Cause: ${decision.cause}`),
        h("h3", {}, `${decision.podGroup ?? decision.pods[0].pod} would fit`), suggestionList(decision.suggestions))),
    !found.details?.nodes ? null : [h("h2", {}, found.details.pod), decisionSection(found.details)],
  ].flat();
}

const percent = (share) => `${Math.round(100 * share)}\u00a0%`;
const changed = (old, now) => (old === now ? old : `${old} → ${now}`);

function compared(found) {
  const [one, two] = found.profiles;
  const { summary, pools, moved } = found.nodes;
  const place = (node, cause) => (node === null ? h("span", { class: "error" }, cause || "no node") : nodeLink(node));
  const empty = (side) => Object.values(pools).reduce((sum, pool) => sum + pool[side].emptyNodes, 0);
  return [
    h("h2", { id: "verdict" }, `${number(summary.moved + summary.lost + summary.gained)} of ${plural(found.results.length, "pod")} would be elsewhere`),
    h("p", { id: "summary-of-nodes" }, `${number(summary.moved)} would move, ${number(summary.lost)} would lose their place, `,
      `${number(summary.gained)} would gain one; empty nodes ${changed(number(empty("old")), number(empty("new")))}.`,
      found.total > found.results.length ? ` ${plural(found.total - found.results.length, "more pod")} were not looked at.` : ""),
    h("p", { class: "hint" }, `From ${one} to ${two}. Equal pods of a controller that only change places with each other are not counted.`),
    moved.length ? [h("h3", {}, "What changes"), table(["pods", one, two], moved.map((each) => [
      [podLink(each.pod), each.pods > 1 ? ` and ${plural(each.pods - 1, "other")}` : ""], places(each.old, "pending"), places(each.new, each.reason || "no node"),
    ]), "What changes")] : null,
    h("h3", {}, "Pools of nodes"),
    table(["pool", "nodes", "empty", "cpu", "memory", "fragmentation"], Object.entries(pools).map(([name, { old, new: now }]) => [
      name, number(old.nodes), changed(number(old.emptyNodes), number(now.emptyNodes)),
      ...["cpu", "memory", "fragmentation"].map((field) => changed(percent(old[field]), percent(now[field]))),
    ]), "Pools of nodes"),
    h("details", {}, h("summary", {}, `All ${plural(found.results.length, "pod")}`), table(["pod", "now", one, two], found.results.map((each) => [
      podLink(each.pod), each.now === null ? "pending" : nodeLink(each.now),
      place(each.nodes[0], each.causes[0]), place(each.nodes[1], each.causes[1]),
    ]), "Where the pods would go")),
  ].flat();
}

// The nodes of equal pods: named if they are few.
function places({ nodes, names }, none) {
  if (!nodes) return h("span", { class: "error" }, none);
  return nodes > 3 ? h("span", { title: names.join(", ") }, plural(nodes, "node")) :
    names.map((name, index) => [index ? ", " : "", nodeLink(name)]).flat();
}
