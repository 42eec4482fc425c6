// Elements, numbers and durations. Text from the cluster becomes text nodes, never markup.

const SVG = "http://www.w3.org/2000/svg";

function filled(element, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(4).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// An element: attributes, listeners as "onclick", and children, of which strings become text nodes.
export function h(tag, properties = {}, ...children) {
  return filled(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), properties, children);
}

export function clear(element, ...children) {
  element.replaceChildren(...children.flat(4).filter((child) => child !== null && child !== undefined));
  return element;
}

export const number = (value) => value.toLocaleString("en");

export const plural = (count, word) => `${number(count)} ${word}${count === 1 ? "" : "s"}`;

// Seconds as kubectl prints ages.
export function duration(seconds) {
  const whole = Math.round(seconds);
  if (whole < 120) return `${whole}s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return whole % 60 ? `${minutes}m${whole % 60}s` : `${minutes}m`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours}h${minutes % 60}m` : `${Math.floor(hours / 24)}d${hours % 24}h`;
}

// A share between 0 and 1 as a bar; `text` says the same.
export function bar(share, text) {
  const fill = h("span", { class: "bar-fill" });
  fill.style.width = `${Math.max(0, Math.min(1, share)) * 100}%`;
  return h("span", { class: "bar", role: "img", "aria-label": text }, fill);
}

export function table(head, rows, name) {
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": name },
    h("table", {},
      h("thead", {}, h("tr", {}, head.map((cell) => h("th", { scope: "col" }, cell)))),
      h("tbody", {}, rows.map((row) => h("tr", {}, row.map((cell) => h("td", {}, cell)))))));
}

export const podAddress = (pod) => `#/pod/${pod.split("/").map(encodeURIComponent).join("/")}`;

export function podLink(pod) {
  return h("a", { href: podAddress(pod) }, pod);
}

// The pod's name where there may be too little space: its end, in which pods differ, is never cut.
export function cutPod(pod) {
  const end = Math.max(Math.ceil(pod.length / 2), pod.length - 20);
  return h("span", { class: "cut", title: pod, role: "img", "aria-label": pod }, h("span", { class: "cut-first" }, pod.slice(0, end)), h("span", {}, pod.slice(end)));
}

export const podGroupAddress = (group) => `#/podgroup/${group.split("/").map(encodeURIComponent).join("/")}`;

export function podGroupLink(group) {
  return h("a", { href: podGroupAddress(group) }, group);
}

export function nodeLink(name) {
  return h("a", { href: `#/cluster?node=${encodeURIComponent(name)}` }, name);
}

// A list of which only the visible rows exist. `row(index)` returns the children of a row, or null
// while they are not known; `open(index)` runs on a click or Enter.
export class VirtualList {
  constructor({ label, rowHeight = 34, row, open, need = () => {} }) {
    this.rowHeight = rowHeight;
    this.row = row;
    this.open = open;
    this.need = need;
    this.count = 0;
    this.active = 0;
    this.space = h("div", { class: "list-space" });
    this.element = h("div", {
      class: "list", role: "listbox", tabindex: "0", "aria-label": label,
      onscroll: () => this.schedule(),
      onkeydown: (event) => this.key(event),
      onclick: (event) => {
        const item = event.target.closest("[data-index]");
        if (item === null) return;
        this.active = Number(item.dataset.index);
        this.draw();
        this.open(this.active);
      },
    }, this.space);
    new ResizeObserver(() => this.schedule()).observe(this.element);
  }

  setRowHeight(pixels) {
    this.rowHeight = pixels;
    this.resize(this.count);
  }

  resize(count) {
    this.count = count;
    this.active = Math.min(this.active, Math.max(0, count - 1));
    this.space.style.height = `${count * this.rowHeight}px`;
    this.schedule();
  }

  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => {
      this.scheduled = false;
      this.draw();
    });
  }

  draw() {
    const first = Math.max(0, Math.floor(this.element.scrollTop / this.rowHeight) - 4);
    const last = Math.min(this.count, first + Math.ceil(this.element.clientHeight / this.rowHeight) + 8);
    this.need(first, last);
    const items = [];
    for (let index = first; index < last; index++) {
      const item = h("div", {
        class: "list-row", role: "option", id: `row-${index}`, "data-index": index,
        "aria-selected": String(index === this.active),
        "aria-posinset": index + 1, "aria-setsize": this.count,
      }, this.row(index) ?? "…");
      item.style.top = `${index * this.rowHeight}px`;
      item.style.height = `${this.rowHeight}px`;
      items.push(item);
    }
    clear(this.space, items);
    if (this.count) this.element.setAttribute("aria-activedescendant", `row-${this.active}`);
    else this.element.removeAttribute("aria-activedescendant");
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 1);
    const steps = {
      ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.count, End: this.count,
    };
    if (event.key in steps) {
      event.preventDefault();
      this.active = Math.max(0, Math.min(this.count - 1, this.active + steps[event.key]));
      const top = this.active * this.rowHeight;
      const view = this.element;
      if (top < view.scrollTop) view.scrollTop = top;
      const bottom = top + this.rowHeight - view.clientHeight;
      if (bottom > view.scrollTop) view.scrollTop = bottom;
      this.draw();
    } else if (event.key === "Enter" && this.count) {
      event.preventDefault();
      this.open(this.active);
    }
  }
}
