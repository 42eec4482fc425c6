// The view Quotas: the tree of Queues for each resource, with the numbers of `mooring queues`.

import { get } from "./api.js";
import { clear, h, table } from "./dom.js";

const REFRESH = 5000;
const HEAD = ["queue", "quota", "nominal", "used", "borrowed", "lent", "waiting", "share"];
const UNITS = { m: 1e-3, k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18 };
const PARTS = [["own", "used of its own"], ["lent", "lent and used by others"], ["free", "left"], ["borrowed", "borrowed"]];

export function quotasView(content) {
  const ended = new AbortController();
  const problem = h("p", { class: "error", role: "alert" });
  const shown = h("div", {});
  clear(content, h("div", { class: "legend" }, PARTS.map(([part, text]) => h("span", {}, h("span", { class: `swatch quota-${part}` }), text))), problem, shown);
  let timer;

  async function load() {
    try {
      const { queues } = await get("queues", ended.signal);
      clear(shown, ...trees(queues));
      problem.textContent = "";
    } catch (error) {
      if (error.name === "AbortError") return;
      problem.textContent = error.message;
    }
    timer = setTimeout(load, REFRESH);
  }

  load();
  return { close() {
    clearTimeout(timer);
    ended.abort();
  }, update() {} };
}

function trees(queues) {
  const resources = [...new Set(queues.flatMap((queue) => queue.resources.map((each) => each.name)))].sort();
  if (!resources.length) return [h("p", { class: "hint" }, "No Queue limits a resource.")];
  return [
    ...queues.filter((queue) => !queue.ready).map((queue) => h("p", { class: "message" }, h("strong", {}, `${queue.name} is not ready: `), queue.message)),
    ...resources.map((resource) => {
      const rows = queues.flatMap((queue) => queue.resources.filter((each) => each.name === resource).map((each) => [queue, each]));
      const most = Math.max(...rows.map(([, each]) => value(each.nominal) + value(each.borrowed)));
      return h("section", { class: "quotas" }, h("h2", {}, resource), table(HEAD, rows.map(([queue, each]) => [
        indented(queue), quotaBar(each, most), each.nominal, each.used, each.borrowed, each.lent, queue.waiting ?? "-", queue.share ?? "-",
      ]), resource));
    }),
  ];
}

function indented(queue) {
  const name = h("div", {}, queue.name, queue.kind === "Queue" ? "" : ` (${queue.kind})`);
  name.style.paddingLeft = `${queue.depth}em`;
  return name;
}

// All bars of a resource have one scale: `most` is as wide as the column.
function quotaBar(each, most) {
  const [nominal, used, borrowed, lent] = [each.nominal, each.used, each.borrowed, each.lent].map(value);
  const own = Math.min(used, nominal);
  const widths = { own, lent, free: Math.max(0, nominal - own - lent), borrowed };
  const text = `${each.used} of ${each.nominal} used, ${each.borrowed} borrowed, ${each.lent} lent`;
  return h("span", { class: "quota", role: "img", "aria-label": text, title: text }, PARTS.map(([part]) => {
    const segment = h("span", { class: `quota-${part}` });
    segment.style.width = `${(100 * widths[part]) / (most || 1)}%`;
    return segment;
  }));
}

// A quantity of Kubernetes as a number.
function value(quantity) {
  const [, amount, unit] = /^([\d.]+)(.*)$/.exec(quantity);
  return Number(amount) * (unit.endsWith("i") ? 1024 ** ("KMGTPE".indexOf(unit[0]) + 1) : UNITS[unit] ?? 1);
}
