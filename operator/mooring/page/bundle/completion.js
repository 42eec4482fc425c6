// A field that completes what is typed: a combobox with a list, as WAI-ARIA describes it. Arrow keys
// move in the list, Enter and a click choose, Esc closes it.

import { Failure } from "./api.js";
import { clear, h } from "./dom.js";

const PAUSE = 200; // milliseconds after the last key before the question is asked

// Returns `label`, if there is one, and the field, which stay on one line. `ask(text, signal)` returns { found: [{ value, hint }], more } or a promise of it; `choose(value)` runs
// for what is chosen, and `enter(text)` on Enter when nothing is.
export function completed(input, { label, ask, choose, enter = () => {} }) {
  let found = [];
  let active = -1;
  let timer = 0;
  let now = new AbortController();
  const id = `${input.id}-found`;
  const list = h("ul", { class: "completion", id, role: "listbox", "aria-label": "Found", hidden: true });
  const status = h("span", { class: "visually-hidden", role: "status" });
  for (const [name, value] of Object.entries({
    role: "combobox", autocomplete: "off", spellcheck: "false", "aria-autocomplete": "list", "aria-expanded": "false", "aria-controls": id,
  })) input.setAttribute(name, value);

  function shut() {
    clearTimeout(timer);
    now.abort();
    found = [];
    active = -1;
    list.hidden = true;
    clear(list);
    input.setAttribute("aria-expanded", "false");
    input.removeAttribute("aria-activedescendant");
  }

  function take(value) {
    shut();
    input.value = value;
    choose(value);
  }

  function draw(more) {
    clear(list, found.map((each, index) => h("li", {
      role: "option", id: `${id}-${index}`, "aria-selected": String(index === active), title: each.value,
      onmousedown: (event) => event.preventDefault(), onclick: () => take(each.value),
    }, h("span", {}, each.value), each.hint ? h("span", { class: "hint" }, ` ${each.hint}`) : null)),
    found.length ? null : h("li", { class: "hint", role: "option", "aria-disabled": "true" }, "nothing has this in its name"),
    more ? h("li", { class: "hint", role: "option", "aria-disabled": "true" }, "and more; write more of the name") : null);
    list.hidden = false;
    input.setAttribute("aria-expanded", "true");
    if (active >= 0) {
      input.setAttribute("aria-activedescendant", `${id}-${active}`);
      list.children[active].scrollIntoView({ block: "nearest" });
    } else input.removeAttribute("aria-activedescendant");
  }

  let more = false;
  async function look() {
    now.abort();
    now = new AbortController();
    const { signal } = now;
    const text = input.value.trim();
    if (text === "") {
      shut();
      return;
    }
    try {
      const answer = await ask(text, signal);
      if (signal.aborted) return;
      ({ found, more } = answer);
      active = -1;
      draw(more);
      status.textContent = `${found.length}${more ? " and more" : ""} found`;
    } catch (error) {
      if (signal.aborted) return;
      if (!(error instanceof Failure)) throw error;
      shut();
    }
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE);
  });
  input.addEventListener("blur", shut);
  input.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && found.length) {
      event.preventDefault();
      active = active < 0 && step < 0 ? found.length - 1 : (active + step + found.length) % found.length;
      draw(more);
    } else if (event.key === "Enter" && active >= 0) {
      event.preventDefault();
      take(found[active].value);
    } else if (event.key === "Enter") {
      shut();
      enter(input.value.trim());
    } else if (event.key === "Escape" && !list.hidden) {
      event.preventDefault(); // it closes the list, and nothing else
      shut();
    }
  });
  const field = h("span", { class: "field" }, input, list, status);
  return h("span", { class: "labelled" }, label ? h("label", { for: input.id }, label) : null, field);
}
