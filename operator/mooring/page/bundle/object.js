// A pod as the API server has it, as YAML, and the events about it; read when they are opened.

import { get } from "./api.js";
import { clear, h, number } from "./dom.js";
import { toYaml } from "./yaml.js";

export function objectSections(pod) {
  return h("section", { class: "objects" },
    opened("Events", "events", pod, events),
    opened("YAML", "object", pod, (object) => h("pre", { tabindex: "0", "aria-label": `YAML of ${pod}` }, toYaml(object))));
}

// Closes what is open; returns whether anything was.
export function closeObjects(content) {
  const open = [...content.querySelectorAll(".objects > details[open]")];
  for (const each of open) {
    each.open = false;
    each.querySelector("summary").focus();
  }
  return open.length > 0;
}

function opened(title, path, pod, draw) {
  const shown = h("div", {});
  const details = h("details", { class: "record", "data-object": path, ontoggle: async () => {
    if (!details.open) return;
    clear(shown, h("p", { role: "status" }, "Asking the API server …"));
    try {
      clear(shown, draw(await get(`${path}?pod=${encodeURIComponent(pod)}`)));
    } catch (error) {
      clear(shown, h("p", { class: "error", role: "alert" }, error.message));
    }
  } }, h("summary", {}, title), shown);
  return details;
}

function events(found) {
  if (!found.events.length) return h("p", { class: "hint" }, "The API server has none; it keeps events for an hour by default.");
  return h("div", {}, h("ol", { class: "timeline" }, found.events.map((each) => h("li", {},
    h("time", { datetime: each.last }, new Date(each.last).toLocaleString()), " ",
    h("strong", { class: each.type === "Warning" ? "error" : "" }, each.reason), ` ${each.source}: ${each.message}`,
    each.count > 1 ? ` (${number(each.count)} times)` : ""))),
  found.more ? h("p", { class: "hint" }, "There may be more; kubectl describe has all.") : null);
}
