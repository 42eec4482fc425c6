// Values of JSON as YAML, for people to read and to edit.

// Words that YAML 1.1 takes for something else than a string.
const WORDS = /^(y|n|yes|no|on|off|true|false|null)$/i;
const PLAIN = /^[A-Za-z_/](?:[\w./@+=-]|:(?=[\w./@+=-])| (?=[\w./@+=-]))*$/;
const PRINTABLE = /^[^\s\p{C}](?:[^\p{C}\p{Zl}\p{Zp}]|\n)*$/u;

export function toYaml(value) {
  return `${lines(value).join("\n")}\n`;
}

function lines(value) {
  if (Array.isArray(value) && value.length) {
    return value.flatMap((each) => lines(each).map((line, index) => `${index ? "  " : "- "}${line}`));
  }
  if (value !== null && typeof value === "object" && Object.keys(value).length) {
    return Object.entries(value).flatMap(([key, each]) => field(scalar(key), each));
  }
  return [Array.isArray(value) ? "[]" : value !== null && typeof value === "object" ? "{}" : scalar(value)];
}

function field(key, value) {
  const block = typeof value === "string" ? literal(value) : null;
  if (block !== null) return [`${key}: ${block}`, ...value.replace(/\n$/, "").split("\n").map((line) => (line ? `  ${line}` : ""))];
  const inner = lines(value);
  if (Array.isArray(value) && value.length) return [`${key}:`, ...inner];
  if (value !== null && typeof value === "object" && Object.keys(value).length) return [`${key}:`, ...inner.map((line) => `  ${line}`)];
  return [`${key}: ${inner[0]}`];
}

// How a text of several lines begins as a block; null if it is none, or only quotes say what is in it.
function literal(text) {
  if (!/[^\n]\n/.test(text) || !PRINTABLE.test(text) || /\n\n$/.test(text)) return null;
  return text.endsWith("\n") ? "|" : "|-";
}

function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  if (PLAIN.test(value) && !WORDS.test(value)) return value;
  return JSON.stringify(value).replace(/[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]/g, (each) => `\\u${each.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
