// The view Cluster: every node is a cell of a canvas, grouped by a label and coloured by the share of
// a resource that pods request.

import { Failure, get, stream } from "./api.js";
import { completed } from "./completion.js";
import { findPods } from "./pod.js";
import { bar, clear, h, number, plural, podAddress, podLink, table } from "./dom.js";
import { WrongBar } from "./wrong.js";

const CORDONED = 1;
const NOT_READY = 2;
const TAINTED = 4;
const HEADING = 22; // pixels above each group
const MOST_CARDS = 60; // up to so many nodes, cells show names
const STEPS = 64; // colours of the ramp

// Where each cell is: x and y by position, and the order in which the arrow keys go. Groups stand side
// by side where several fit into the width.
function arranged(groups, width, count) {
  const cards = count <= MOST_CARDS;
  const cell = cards
    ? { width: Math.min(168, Math.max(120, Math.floor((width - 8) / 2) - 6)), height: 46, gap: 6 }
    : { width: side(width, count), height: 0, gap: count > 1500 ? 1 : 2 };
  if (!cards) cell.height = cell.width;
  const step = cell.width + cell.gap;
  const most = Math.max(1, Math.floor((width + cell.gap) / step));
  const least = Math.min(most, Math.ceil(150 / step)); // leaves space for the heading
  const x = new Int32Array(count);
  const y = new Int32Array(count);
  const order = [];
  const headings = [];
  let [left, top, bottom] = [0, 0, 0];
  for (const group of groups) {
    const size = group.members.length;
    let columns = groups.length === 1 ? most : Math.max(least, Math.min(most, Math.ceil(Math.sqrt(size * (cards ? 1 : 3)))));
    if (columns > most / 2) columns = most;
    if (left > 0 && left + columns * step - cell.gap > width) [left, top] = [0, bottom];
    headings.push({ ...group, x: left, y: top, columns, width: columns * step - cell.gap });
    group.members.forEach((position, index) => {
      x[position] = left + (index % columns) * step;
      y[position] = top + HEADING + Math.floor(index / columns) * (cell.height + cell.gap);
      order.push(position);
    });
    bottom = Math.max(bottom, top + HEADING + Math.ceil(size / columns) * (cell.height + cell.gap) + 10);
    left += columns * step + (cards ? 14 : 16);
  }
  return { x, y, order, headings, cell, cards, height: Math.max(bottom, 60) };
}

// The side of a square cell with which the cells fill about 560 pixels of height.
function side(width, count) {
  return Math.max(8, Math.min(28, Math.floor(Math.sqrt((width * 560) / count)) - 2));
}

// The place of each name in the order in which node-9 is before node-10. Comparing 5,000 names with a
// collator would take ten times as long.
function ranked(names) {
  const keys = names.map((name) => name.replace(/\d+/g, (digits) => digits.padStart(12, "0")));
  const ranks = new Int32Array(names.length);
  keys.map((_, position) => position)
    .sort((a, b) => (keys[a] < keys[b] ? -1 : 1))
    .forEach((position, rank) => { ranks[position] = rank; });
  return ranks;
}

function share(requested, allocatable) {
  if (allocatable > 0) return requested / allocatable;
  return requested > 0 ? 1 : -1;
}

function mixed(from, to, part) {
  return from.map((value, index) => Math.round(value + (to[index] - value) * part));
}

// Colours of the theme as the canvas needs them.
function palette(probe) {
  const read = (name) => {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color.match(/[\d.]+/g).slice(0, 3).map(Number);
  };
  const stops = ["--ramp-0", "--ramp-1", "--ramp-2", "--ramp-3"].map(read);
  const ramp = [];
  for (let step = 0; step < STEPS; step++) {
    const at = (step / (STEPS - 1)) * (stops.length - 1);
    const index = Math.min(stops.length - 2, Math.floor(at));
    ramp.push(mixed(stops[index], stops[index + 1], at - index));
  }
  const text = (rgb) => `rgb(${rgb.join(" ")})`;
  const light = (rgb) => 0.3 * rgb[0] + 0.59 * rgb[1] + 0.11 * rgb[2] > 140;
  const result = { ramp: ramp.map(text), onRamp: ramp.map((rgb) => (light(rgb) ? "#10151c" : "#fff")) };
  for (const name of ["ink", "muted", "line", "bad", "warn", "focus", "cell-none"]) {
    result[name] = text(read(`--${name}`));
  }
  return result;
}

export function clusterView(content, context, _rest, query) {
  let nodes = null; // what the last snapshot and the changes since then say
  let layout = null;
  let colours = null;
  let selected = -1;
  let hovered = -1;
  let opened = null;
  let drawing = 0;
  let dirty = []; // positions of cells to draw, null for everything
  let closeStream = () => {};
  const choice = { resource: query.get("resource") ?? "cpu", label: query.get("label") };

  const resources = h("select", { id: "resource", onchange: () => choose({ resource: resources.value }) });
  const labels = h("select", { id: "label", onchange: () => choose({ label: labels.value }) });
  const find = h("input", { id: "find", type: "search", placeholder: "name" });
  const findPod = h("input", { id: "find-pod", type: "search", placeholder: "namespace/name" });
  const summary = h("p", { class: "summary", id: "summary", role: "status" }, "Waiting for the nodes …");
  const legend = h("div", { class: "legend" });
  const canvas = h("canvas", {
    id: "nodes", tabindex: "0", role: "application",
    "aria-label": "Nodes as cells. Arrow keys move, Enter opens a node, Esc closes it.", "aria-describedby": "selected-node",
  });
  const tip = h("div", { class: "tip", hidden: true });
  const probe = h("span", { hidden: true });
  const selectedText = h("p", { class: "visually-hidden", id: "selected-node", "aria-live": "polite" });
  const details = h("aside", { class: "details", "aria-label": "Node", hidden: true, tabindex: "-1" });
  const map = h("div", { class: "map" }, canvas, tip);
  const wrong = new WrongBar();

  clear(content, wrong.element,
    h("div", { class: "controls" },
      h("label", { for: "resource" }, "Coloured by requested ", resources),
      h("label", { for: "label" }, "Grouped by ", labels),
      completed(find, { label: "Find a node", ask: nodesNamed, choose: (name) => open(name, true), enter: first }),
      completed(findPod, { label: "Find a pod", ask: findPods, choose: showPod, enter: firstPod })),
    summary, legend, h("div", { class: "split" }, map, details), selectedText, probe);

  function choose(change) {
    Object.assign(choice, change);
    tellAddress();
    connect();
  }

  // The address shows the same again, to whoever gets it.
  function tellAddress() {
    const told = new URLSearchParams(Object.entries({ ...choice, node: opened }).filter(([, value]) => value !== null));
    history.replaceState(null, "", `#/cluster?${told}`);
  }

  function connect() {
    closeStream();
    const path = new URLSearchParams({ resource: choice.resource });
    if (choice.label !== null) path.set("label", choice.label);
    closeStream = stream(`stream?${path}`, (event, data) => {
      if (event === "snapshot") replaced(data);
      else if (event === "nodes") changed(data);
      else if (event === "queue") context.leading(data.leading);
    }, context.connected);
  }

  function replaced(data) {
    const name = selected >= 0 ? nodes.names[selected] : null;
    nodes = {
      names: data.names,
      ranks: ranked(data.names),
      codes: data.groups.codes,
      values: data.groups.values,
      allocatable: Float64Array.from(data.allocatable),
      requested: Float64Array.from(data.requested),
      pods: Float64Array.from(data.pods),
      flags: Uint8Array.from(data.flags),
    };
    selected = name === null ? -1 : nodes.names.indexOf(name);
    hovered = -1;
    options(resources, data.resources, data.resource);
    options(labels, ["", ...data.labels], data.label, (label) => label || "nothing");
    arrange();
    tellNotReady();
    const wanted = query.get("node");
    query.delete("node"); // it is opened once; who closes it wants it closed
    if (wanted !== null && opened === null) open(wanted);
  }

  function changed(data) {
    data.at.forEach((position, index) => {
      for (const name of ["allocatable", "requested", "pods", "flags"]) nodes[name][position] = data[name][index];
    });
    draw(data.at);
    tellNotReady();
  }

  function tellNotReady() {
    wrong.nodes(nodes.names.filter((_, position) => nodes.flags[position] & NOT_READY).sort());
  }

  function options(select, values, value, text = (known) => known) {
    const known = [...select.options].map((option) => option.value);
    if (known.length !== values.length || known.some((each, index) => each !== values[index])) {
      clear(select, values.map((each) => h("option", { value: each }, text(each))));
    }
    select.value = value;
  }

  function arrange() {
    if (nodes === null) return;
    const members = new Map();
    nodes.codes.forEach((code, position) => {
      if (!members.has(code)) members.set(code, []);
      members.get(code).push(position);
    });
    const { ranks } = nodes;
    const collator = new Intl.Collator("en", { numeric: true });
    const groups = [...members].map(([code, positions]) => ({
      title: code < 0 ? (labels.value ? "without the label" : "all nodes") : nodes.values[code],
      last: code < 0,
      members: positions.sort((a, b) => ranks[a] - ranks[b]),
    })).sort((a, b) => a.last - b.last || collator.compare(a.title, b.title));
    const width = Math.max(240, map.clientWidth - 2);
    layout = arranged(groups, width, nodes.names.length);
    const density = devicePixelRatio || 1;
    canvas.width = Math.round(width * density);
    canvas.height = Math.round(layout.height * density);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${layout.height}px`;
    draw();
  }

  // In the next frame draws everything, or only what belongs to the cells at these positions.
  function draw(positions = null) {
    dirty = positions === null || dirty === null ? null : dirty.concat(positions);
    if (drawing) return;
    drawing = requestAnimationFrame(() => {
      drawing = 0;
      const cells = dirty;
      dirty = [];
      if (layout !== null) paint(cells);
    });
  }

  function paint(cells) {
    colours ??= palette(probe);
    const brush = canvas.getContext("2d");
    const density = devicePixelRatio || 1;
    brush.setTransform(density, 0, 0, density, 0, 0);
    if (cells === null) brush.clearRect(0, 0, canvas.width, canvas.height);
    brush.textBaseline = "middle";
    let full = 0;
    let counted = 0;
    let pods = 0;
    for (const group of layout.headings) {
      let used = 0;
      let total = 0;
      for (const position of group.members) {
        used += nodes.requested[position];
        total += nodes.allocatable[position];
        pods += nodes.pods[position];
      }
      full += used;
      counted += total;
      const percent = total ? ` · ${Math.round((100 * used) / total)} %` : "";
      if (cells !== null && percent === group.percent) continue;
      group.percent = percent;
      brush.clearRect(group.x, group.y, group.width, HEADING - 2);
      brush.font = "600 13px system-ui, sans-serif";
      brush.fillStyle = colours.ink;
      const title = shortened(brush, group.title, Math.max(60, group.width - 100));
      brush.fillText(title, group.x, group.y + HEADING / 2);
      const width = brush.measureText(title).width;
      brush.font = "12px system-ui, sans-serif";
      brush.fillStyle = colours.muted;
      const text = `${plural(group.members.length, "node")}${percent}`;
      brush.fillText(shortened(brush, text, group.width - width - 8), group.x + width + 8, group.y + HEADING / 2);
    }
    if (cells === null) for (let position = 0; position < nodes.names.length; position++) cell(brush, position);
    else for (const position of cells) cell(brush, position);
    if (selected >= 0) outline(brush, selected, colours.focus, 2);
    if (hovered >= 0 && hovered !== selected) outline(brush, hovered, colours.ink, 1);
    const use = counted ? `${Math.round((100 * full) / counted)} % of ${resources.value} requested` : `no ${resources.value}`;
    const text = `${plural(nodes.names.length, "node")} · ${plural(pods, "pod")} · ${use}`;
    if (summary.textContent !== text) summary.textContent = text;
    if (!legend.hasChildNodes()) drawLegend();
  }

  function cell(brush, position) {
    const { x, y, cell: size, cards } = layout;
    const left = x[position];
    const top = y[position];
    const used = share(nodes.requested[position], nodes.allocatable[position]);
    const step = Math.min(STEPS - 1, Math.max(0, Math.round(used * (STEPS - 1))));
    brush.fillStyle = used < 0 ? colours["cell-none"] : colours.ramp[step];
    brush.fillRect(left, top, size.width, size.height);
    const flags = nodes.flags[position];
    const edge = Math.max(2, Math.round(size.height / 9));
    if (flags & NOT_READY) {
      brush.fillStyle = colours.bad;
      brush.fillRect(left, top, size.width, edge);
      brush.fillRect(left, top + size.height - edge, size.width, edge);
    } else if (flags & CORDONED) {
      brush.fillStyle = colours.warn;
      brush.fillRect(left, top, size.width, edge);
    } else if (flags & TAINTED) {
      brush.fillStyle = colours.warn;
      brush.beginPath();
      brush.moveTo(left + size.width, top);
      brush.lineTo(left + size.width - 2 * edge, top);
      brush.lineTo(left + size.width, top + 2 * edge);
      brush.fill();
    }
    if (!cards) return;
    brush.fillStyle = used < 0 ? colours.ink : colours.onRamp[step];
    brush.font = "600 12px system-ui, sans-serif";
    brush.fillText(shortened(brush, nodes.names[position], size.width - 16), left + 8, top + 15);
    brush.font = "12px system-ui, sans-serif";
    const percent = used < 0 ? "none" : `${Math.round(used * 100)} %`;
    brush.fillText(`${percent} · ${plural(nodes.pods[position], "pod")}`, left + 8, top + 32);
  }

  function shortened(brush, text, width) {
    if (brush.measureText(text).width <= width) return text;
    let end = text.length;
    while (end > 1 && brush.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
    return `${text.slice(0, end)}…`;
  }

  function outline(brush, position, colour, width) {
    const { x, y, cell: size } = layout;
    brush.strokeStyle = colour;
    brush.lineWidth = width;
    brush.strokeRect(x[position] - 0.5, y[position] - 0.5, size.width + 1, size.height + 1);
  }

  function drawLegend() {
    const swatch = (colour) => {
      const box = h("span", { class: "swatch" });
      box.style.background = colour;
      return box;
    };
    const scale = h("span", { class: "scale" }, [0, 16, 32, 48, STEPS - 1].map((step) => swatch(colours.ramp[step])));
    clear(legend, "requested: 0 %", scale, "100 %",
      h("span", {}, swatch(colours["cell-none"]), "has none"),
      h("span", {}, h("span", { class: "swatch not-ready" }), "not ready"),
      h("span", {}, h("span", { class: "swatch cordoned" }), "cordoned"),
      h("span", {}, h("span", { class: "swatch tainted" }), "has a taint"));
  }

  function at(event) {
    if (layout === null) return -1;
    const box = canvas.getBoundingClientRect();
    const px = event.clientX - box.left;
    const py = event.clientY - box.top;
    const { cell: size } = layout;
    for (const group of layout.headings) {
      if (!group.members.length) continue;
      const row = Math.floor((py - group.y - HEADING) / (size.height + size.gap));
      const column = Math.floor((px - group.x) / (size.width + size.gap));
      if (row < 0 || column < 0 || column >= group.columns) continue;
      const position = group.members[row * group.columns + column];
      if (position !== undefined && layout.y[position] <= py && py < layout.y[position] + size.height) return position;
    }
    return -1;
  }

  function told(position) {
    const used = share(nodes.requested[position], nodes.allocatable[position]);
    const words = [used < 0 ? `no ${resources.value}` : `${Math.round(used * 100)} % of ${resources.value} requested`];
    words.push(plural(nodes.pods[position], "pod"));
    if (nodes.flags[position] & NOT_READY) words.push("not ready");
    if (nodes.flags[position] & CORDONED) words.push("cordoned");
    if (nodes.flags[position] & TAINTED) words.push("has a taint");
    return `${nodes.names[position]}: ${words.join(", ")}`;
  }

  canvas.addEventListener("mousemove", (event) => {
    const position = at(event);
    canvas.style.cursor = position >= 0 ? "pointer" : "default";
    tip.hidden = position < 0;
    if (position >= 0) {
      tip.textContent = told(position);
      const left = Math.min(layout.x[position], Math.max(0, canvas.clientWidth - 260));
      tip.style.left = `${left}px`;
      tip.style.top = `${layout.y[position] + layout.cell.height + 6}px`;
    }
    if (position !== hovered) {
      hovered = position;
      draw();
    }
  });
  canvas.addEventListener("mouseleave", () => {
    tip.hidden = true;
    hovered = -1;
    draw();
  });
  canvas.addEventListener("click", (event) => {
    const position = at(event);
    if (position >= 0) {
      select(position);
      open(nodes.names[position]);
    }
  });
  canvas.addEventListener("keydown", (event) => {
    if (layout === null || !layout.order.length) return;
    const index = Math.max(0, layout.order.indexOf(selected));
    let next = null;
    if (event.key === "ArrowRight") next = selected < 0 ? 0 : index + 1;
    else if (event.key === "ArrowLeft") next = index - 1;
    else if (event.key === "Home") next = 0;
    else if (event.key === "End") next = layout.order.length - 1;
    else if (event.key === "ArrowDown" || event.key === "ArrowUp") next = selected < 0 ? 0 : beside(event.key === "ArrowDown");
    else if (event.key === "Enter" && selected >= 0) open(nodes.names[selected], true);
    else return;
    event.preventDefault();
    if (next !== null) select(layout.order[Math.max(0, Math.min(layout.order.length - 1, next))]);
  });

  // The place in the order of the nearest cell in the row below or above.
  function beside(below) {
    const { x, y, order } = layout;
    let best = -1;
    let least = Infinity;
    order.forEach((position, index) => {
      const step = below ? y[position] - y[selected] : y[selected] - y[position];
      if (step <= 0) return;
      const distance = step * 10000 + Math.abs(x[position] - x[selected]);
      if (distance < least) {
        least = distance;
        best = index;
      }
    });
    return best < 0 ? order.indexOf(selected) : best;
  }

  function select(position) {
    selected = position;
    selectedText.textContent = told(position);
    draw();
  }

  function nodesNamed(text) {
    const names = nodes === null ? [] : nodes.names.filter((name) => name.includes(text));
    return { found: names.slice(0, 10).map((value) => ({ value })), more: names.length > 10 };
  }

  function first(text) {
    const [node] = nodesNamed(text).found;
    if (text !== "" && node !== undefined) open(node.value, true);
  }

  function showPod(pod) {
    location.hash = podAddress(pod);
  }

  async function firstPod(text) {
    if (text === "") return;
    try {
      const { found: [pod] } = await findPods(text);
      showPod(pod?.value ?? text);
    } catch (error) {
      if (!(error instanceof Failure)) throw error;
      showPod(text); // that view says what is wrong
    }
  }

  async function open(name, focus = false) {
    opened = name;
    tellAddress();
    const position = nodes.names.indexOf(name);
    if (position >= 0) select(position);
    let shown;
    try {
      shown = nodeDetails(await get(`node?name=${encodeURIComponent(name)}`));
    } catch (error) {
      shown = [h("h2", {}, name), h("p", { class: "error", role: "alert" }, error.message)];
    }
    if (opened !== name) return;
    const again = h("button", { type: "button", class: "quiet", onclick: () => open(name) }, "Refresh");
    const close = h("button", { type: "button", class: "quiet", onclick: shut }, "Close");
    const wasHidden = details.hidden;
    details.hidden = false;
    clear(details, h("div", { class: "buttons" }, again, close), shown);
    if (wasHidden) arrange();
    if (focus || matchMedia("(max-width: 60rem)").matches) details.focus();
  }

  // Closes the node.
  function shut() {
    tip.hidden = true;
    if (opened === null) return;
    opened = null;
    details.hidden = true;
    tellAddress(); // a reload does not open it again
    arrange();
    canvas.focus();
  }

  const repaint = () => {
    colours = null;
    clear(legend);
    draw();
  };
  const preference = matchMedia("(prefers-color-scheme: dark)");
  const resized = new ResizeObserver(() => {
    if (layout !== null && Math.abs(map.clientWidth - 2 - canvas.clientWidth) > 4) arrange();
  });
  resized.observe(map);
  addEventListener("theme", repaint);
  preference.addEventListener("change", repaint);
  connect();
  return {
    close() {
      closeStream();
      wrong.close();
      resized.disconnect();
      removeEventListener("theme", repaint);
      preference.removeEventListener("change", repaint);
      cancelAnimationFrame(drawing);
    },
    escape: shut,
    update(_rest_, now) {
      if (now.get("node") !== null && nodes !== null) open(now.get("node"), true);
    },
  };
}

function nodeDetails(node) {
  const notReady = node.conditions.Ready !== "True";
  const pressure = Object.entries(node.conditions).filter(([type, status]) => type !== "Ready" && status === "True");
  return [
    h("h2", {}, node.name),
    h("p", { class: "badges" },
      h("span", { class: notReady ? "badge bad" : "badge good" }, notReady ? "not ready" : "ready"),
      node.cordoned ? h("span", { class: "badge warn" }, "cordoned") : null,
      pressure.map(([type]) => h("span", { class: "badge warn" }, type)),
      node.taints.map((taint) => h("span", { class: "badge" },
        `taint ${taint.key}${taint.value ? `=${taint.value}` : ""}:${taint.effect}`))),
    node.reserved === null ? null : h("p", { class: "hint", id: "reserved" }, `It is ${node.reserved}: pods of lower priority leave that pod group what it requests.`),
    h("h3", {}, "Largest pod that would still fit"),
    h("p", { class: "largest", id: "largest" }, node.largestPod === null ? "None: it has no pod slot, cpu or memory left." :
      Object.entries(node.largestPod).map(([name, text]) => `${name} ${text}`).join(", ")),
    h("p", { class: "hint" }, node.taints.length || node.cordoned ?
      "By its free resources. The pod must also tolerate the taints and the filters of its profile." :
      "By its free resources. The filters of the pod's profile may still reject the node."),
    h("h3", {}, "Resources"),
    table(["resource", "requested", "allocatable", "free", ""],
      [...node.resources, {
        name: "pods", allocatable: node.podSlots, requested: node.podCount,
        texts: [String(node.podSlots), String(node.podCount), String(Math.max(0, node.podSlots - node.podCount))],
      }].map((each) => [
        each.name, each.texts[1], each.texts[0], each.texts[2],
        bar(each.allocatable ? each.requested / each.allocatable : 0, `${each.texts[1]} of ${each.texts[0]} requested`),
      ]), "Resources of the node"),
    node.gpus.map(gpuCards),
    deviceTables(node),
    h("h3", {}, `${plural(node.podCount, "pod")}`),
    node.pods.length ? table(["pod", "priority", "requests", "state"], node.pods.map((pod) => [
      podLink(pod.pod), String(pod.priority),
      Object.entries(pod.requests).map(([name, text]) => `${name} ${text}`).join(", ") || "nothing", pod.state,
    ]), "Pods on the node") : null,
    node.otherPods ? h("p", { class: "hint" }, `${plural(node.otherPods, "pod")} of namespaces whose pods you may not get`) : null,
    node.nominated.length ? h("p", {}, "Nominated: ", node.nominated.map((pod) => [podLink(pod.pod), " "])) : null,
    node.otherNominated ? h("p", { class: "hint" }, `${plural(node.otherNominated, "nominated pod")} of other namespaces`) : null,
    h("details", {}, h("summary", {}, plural(Object.keys(node.labels).length, "label")),
      h("ul", { class: "labels" }, Object.entries(node.labels).map(([key, value]) => h("li", {}, `${key}=${value}`)))),
  ].flat();
}

// The devices of ResourceSlices, a table for each pool.
function deviceTables(node) {
  const pools = new Map();
  for (const device of node.devices) {
    const key = device.pool === node.name ? device.driver : `${device.driver}, pool ${device.pool}`;
    pools.set(key, [...(pools.get(key) ?? []), device]);
  }
  const facts = (device) => [
    ...Object.entries(device.attributes), ...Object.entries(device.capacity).map(([name, { value, consumed }]) =>
      [name, consumed === undefined ? value : `${consumed} of ${value} in use`]),
  ].map(([name, text]) => `${name} ${text}`).join(", ");
  return [
    [...pools].map(([pool, devices]) => h("section", {},
      h("h3", {}, `Devices of ${pool}`),
      h("p", { class: "hint" }, `${plural(devices.filter((each) => each.state === "free").length, "device")} of ${devices.length} free`),
      table(["device", "state", "held by"], devices.map((device) => [
        facts(device) ? h("details", {}, h("summary", {}, device.device), facts(device)) : device.device,
        h("span", {}, device.state, device.taints.map((taint) => [h("br"), `taint ${taint}`])),
        h("span", {}, device.holders.map((holder, index) => [
          index ? ", " : "", `claim ${holder.claim}${holder.adminAccess ? " with admin access" : ""}`, holder.pods.map((pod) => [" ", podLink(pod)]),
        ]), device.otherHolders ? ` ${plural(device.otherHolders, "claim")} of other namespaces` : ""),
      ]), `Devices of ${pool}`))),
    node.otherDevices ? h("p", { class: "hint" }, `and ${plural(node.otherDevices, "more device")}`) : null,
  ].flat();
}

function gpuCards(gpus) {
  const total = (card) => (card.memory ? `${number(card.free)} of ${number(card.memory)} free` : `${card.freeCores} % free`);
  const links = gpus.links.flatMap((row, from) => row.map((rank, to) => [from, to, rank])
    .filter(([a, b, rank]) => a < b && rank > 10).map(([a, b, rank]) => `${a}–${b} (NV${rank - 10})`));
  return h("section", {},
    h("h3", {}, `GPU cards (${gpus.resource}, units of ${gpus.unit})`),
    table(["card", "product", "memory", "pods"], gpus.cards.map((card) => [
      String(card.number), card.product || "–",
      card.usable ? total(card) : "not usable",
      h("span", {}, card.owners.map((pod) => [podLink(pod), card.guessed.includes(pod) ? " (guessed) " : " "]),
        card.otherOwners ? `${card.otherOwners} of other namespaces` : ""),
    ]), "GPU cards"),
    h("p", { class: "hint" }, `largest share that fits: ${number(gpus.largestShare)}; ${plural(gpus.freeCards, "free card")}`,
      links.length ? `; NVLink: ${links.join(", ")}` : ""));
}
