// What is wrong now, in a few words with links: pending pods by cause, nodes that are not ready,
// profiles whose newest spec is not in force or that conflict with another.

import { get } from "./api.js";
import { clear, duration, h, nodeLink, number, plural } from "./dom.js";

const EVERY = 5000; // milliseconds between two looks
const MOST_CAUSES = 5;
const MOST_NAMES = 3;
const UNDECIDED = "not decided yet"; // stands for pods that have just come, so it is named last

export class WrongBar {
  constructor() {
    this.pending = null;
    this.profiles = [];
    this.conflicts = [];
    this.notReady = [];
    this.ended = new AbortController();
    this.element = h("section", { class: "wrong", id: "wrong", "aria-label": "What is wrong" });
    this.look();
  }

  close() {
    this.ended.abort();
    clearTimeout(this.timer);
  }

  // `names` are those of the nodes that are not ready.
  nodes(names) {
    this.notReady = names;
    this.draw();
  }

  // What is shown stays while there is no answer.
  async look() {
    try {
      if (!document.hidden) {
        const [queue, policy] = await Promise.all([get("queue", this.ended.signal), get("policy", this.ended.signal)]);
        this.pending = queue;
        this.profiles = policy.profiles.filter((each) => each.status !== null && !each.status.ready);
        this.conflicts = policy.profiles.filter((each) => each.conflict);
        this.draw();
      }
    } catch (error) {
      if (error.name === "AbortError") return;
    }
    if (!this.ended.signal.aborted) this.timer = setTimeout(() => this.look(), EVERY);
  }

  draw() {
    if (this.pending === null) return;
    const active = document.activeElement;
    const focused = this.element.contains(active) ? active.getAttribute("href") : null;
    clear(this.element, this.pods(), this.pending.total ? null : h("p", { class: "fine" }, "No pod is pending."),
      this.notReady.length ? h("p", {}, h("strong", {}, `${plural(this.notReady.length, "node")} not ready`), ": ",
        named(this.notReady, nodeLink)) : null,
      this.profiles.length ? h("p", {}, h("strong", {}, `${plural(this.profiles.length, "profile")} not in force`), ": ",
        named(this.profiles, (each) => h("a", { href: "#/policy", title: each.status.message }, each.name))) : null,
      this.conflicts.length ? h("p", {}, h("strong", {}, `${plural(this.conflicts.length, "profile")} in conflict`), ": ",
        named(this.conflicts, (each) => h("a", { href: "#/policy", title: each.conflict }, each.name))) : null);
    if (focused !== null) this.element.querySelector(`[href="${CSS.escape(focused)}"]`)?.focus();
  }

  pods() {
    const { total, causes, otherCauses } = this.pending;
    if (!total) return null;
    const sorted = [...causes].sort((one, other) => (one.cause === UNDECIDED) - (other.cause === UNDECIDED));
    const oldest = Math.max(0, ...causes.map((each) => each.oldestSeconds));
    const words = sorted.slice(0, MOST_CAUSES).map((each) => [
      h("a", { href: `#/queue?${new URLSearchParams({ cause: each.cause })}`, title: each.cause },
        `${short(each.cause)} ${number(each.pods)}`),
      ", ",
    ]).flat();
    const more = sorted.length - MOST_CAUSES;
    if (more > 0) words.push(h("a", { href: "#/queue" }, `${plural(more, "more cause")}`), ", ");
    if (otherCauses) words.push(`${number(otherCauses)} of others`, ", ");
    return h("p", {}, h("strong", {}, h("a", { href: "#/queue" }, `${number(total)} pending`)), ": ", words.slice(0, -1),
      oldest ? h("span", { class: "hint" }, ` · the oldest for ${duration(oldest)}`) : null);
  }
}

// "Insufficient cpu" is said as "cpu"; all other causes as they are.
function short(cause) {
  return cause.replace(/^Insufficient (?=\S+$)/, "");
}

function named(all, link) {
  const more = all.length - MOST_NAMES;
  return [all.slice(0, MOST_NAMES).map((each, index) => [index ? ", " : "", link(each)]), more > 0 ? ` and ${number(more)} more` : ""].flat(3);
}
