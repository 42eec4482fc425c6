// The chart of the last hour: pending pods by state over time, with axes.

import { duration, h, number, svg } from "./dom.js";

export const SERIES = ["active", "backoff", "unschedulable", "gated", "waiting at Permit"];

const WIDTH = 720; // units of the drawing, which is as wide as the page; text stands beside it
const HEIGHT = 150;
const STEPS = [60, 300, 600, 900]; // seconds between two times on the axis
const MOST_TIMES = 6;

export function trendChart(trend) {
  const times = trend.time;
  if (times.length < 2) return h("p", { class: "hint" }, "The counts are noted every ten seconds; there are too few yet.");
  const last = times[times.length - 1];
  const first = Math.min(times[0], last - 60);
  const counts = ticks(Math.max(1, ...SERIES.flatMap((name) => trend[name])));
  const top = counts[counts.length - 1];
  const x = (time) => (time - first) / (last - first);
  const y = (value) => 1 - value / top;
  const marks = moments(first, last);
  const lines = SERIES.map((name, index) => svg("polyline", {
    class: `line line-${index}`, fill: "none",
    points: times.map((time, at) => `${(x(time) * WIDTH).toFixed(1)},${(y(trend[name][at]) * HEIGHT).toFixed(1)}`).join(" "),
  }));
  const rate = Math.round(((trend.bound[trend.bound.length - 1] - trend.bound[0]) / Math.max(1, last - times[0])) * 600) / 10;
  const text = SERIES.map((name) => `${name} ${number(trend[name][trend[name].length - 1])}`).join(", ");
  return [
    h("div", { class: "plot" },
      h("div", { class: "axis-y", "aria-hidden": "true" }, h("span", { class: "widest" }, number(top)),
        counts.map((count) => placed("top", y(count), number(count)))),
      svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Pending pods: ${text}`, preserveAspectRatio: "none" },
        counts.map((count) => svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: y(count) * HEIGHT, y2: y(count) * HEIGHT })),
        marks.map((time) => svg("line", { class: "axis", x1: x(time) * WIDTH, x2: x(time) * WIDTH, y1: 0, y2: HEIGHT })), lines),
      h("div", { class: "axis-x", "aria-hidden": "true" }, marks.map((time) => placed("left", x(time), clock(time))))),
    h("p", { class: "chart-legend" }, SERIES.map((name, index) => h("span", {},
      h("span", { class: `key key-${index}` }), ` ${name}`)),
    h("span", { class: "hint" }, `pods; ${duration(last - times[0])} shown; ${number(rate)} pods bound per minute`)),
  ];
}

// 0 and up to four numbers above it, of which the last is not less than `most`; all are whole.
function ticks(most) {
  const raw = Math.max(1, most / 4);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = Math.ceil([1, 2, 2.5, 5, 10].map((factor) => factor * power).find((each) => each >= raw && Number.isInteger(each)));
  return Array.from({ length: Math.ceil(most / step) + 1 }, (_, index) => index * step);
}

// Full minutes between these times, in seconds since the epoch; at most six.
function moments(first, last) {
  const step = STEPS.find((each) => (last - first) / each <= MOST_TIMES) ?? 3600;
  const offset = new Date(first * 1000).getTimezoneOffset() * 60; // local full hours may not be those of UTC
  const found = [];
  for (let time = Math.ceil((first - offset) / step) * step + offset; time <= last; time += step) found.push(time);
  return found;
}

function clock(time) {
  return new Date(time * 1000).toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
}

function placed(side, share, text) {
  const mark = h("span", {}, text);
  mark.style[side] = `${share * 100}%`;
  return mark;
}
