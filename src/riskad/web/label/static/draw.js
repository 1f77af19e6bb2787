// What the page draws. All text from the data goes through textContent, never through HTML.

const SVG = "http://www.w3.org/2000/svg";
const FIRST = 10; // columns that are shown at once
const FAR = 0.05; // a value is far out if so few rows lie as far

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export function fromData(text, attributes = {}) {
  return element("bdi", attributes, text);
}

export function number(value, digits = 3) {
  if (value === null || value === undefined) return "";
  return Number(value.toPrecision(digits)).toLocaleString("en");
}

export function percent(share) {
  if (share < 0.001) return "below 0.1%";
  if (share > 0.999) return "above 99.9%";
  return `${Number((100 * share).toFixed(1))}%`;
}

export function plural(count, one, many = `${one}s`) {
  return `${count.toLocaleString("en")} ${count === 1 ? one : many}`;
}

function drawn(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

// Bars of a column, and where a value lies among them.
export function picture(column, cell) {
  if (!column || cell.at === undefined) return null;
  const width = 152;
  const height = 28;
  const far = cell.rarity < FAR ? " far" : "";
  const where = cell.at === null ? "blank" : far ? "far out" : "among the usual values";
  const svg = drawn("svg", {
    class: "place", viewBox: `0 0 ${width} ${height + 2}`, role: "img", "aria-label": `value ${where}`,
  });
  const most = Math.max(...column.counts, 1);
  const each = width / column.counts.length;
  column.counts.forEach((count, i) => {
    const tall = count ? Math.max(height * Math.sqrt(count / most) * 0.9, 1.5) : 0;
    const here = column.levels && cell.at === i ? ` here${far}` : "";
    svg.append(drawn("rect", {
      class: `bar${here}`, x: (i * each + 0.5).toFixed(1), y: (height - tall).toFixed(1),
      width: Math.max(each - 1, 0.5).toFixed(1), height: tall.toFixed(1),
    }));
  });
  if (cell.at !== null && !(column.levels && cell.at < column.counts.length)) {
    const share = column.levels ? 1 : cell.at;
    const x = (1.5 + share * (width - 3)).toFixed(1);
    svg.append(drawn("line", { class: `mark${far}`, x1: x, x2: x, y1: 0, y2: height + 2 }));
  }
  return svg;
}

function meter(adds, largest) {
  const bar = element("span", { class: adds < 0 ? "less" : "more", "aria-hidden": "true" });
  bar.style.width = `${Math.round((100 * Math.abs(adds)) / (largest || 1))}%`;
  return element("div", { class: "meter" }, number(adds, 2), bar);
}

function cellLine(name, cell, column, reason, largest) {
  const blank = cell ? cell.text === null : false;
  const value = cell ? (blank ? "blank" : cell.text) : reason.value;
  const usual = reason ? reason.usual : column?.usual;
  return element("tr", {},
    element("th", { scope: "row", class: "name" }, fromData(name)),
    element("td", { class: blank ? "value blank" : "value" }, blank ? value : fromData(value)),
    element("td", { class: "picture" }, cell ? picture(column, cell) : null),
    element("td", { class: "usual" }, usual ? fromData(usual) : null),
    element("td", { class: "adds" }, reason ? meter(reason.adds, largest) : null));
}

function cellTable(lines, withReasons) {
  const heads = ["Column", "Value", "Among all rows", "Usual", withReasons ? "Adds to score" : ""];
  const kinds = ["name", "worth", "picture", "usual", "adds"];
  const head = heads.map((text, i) => element("th", { scope: "col", class: kinds[i] }, text));
  return element("table", { class: "cells" },
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...lines));
}

// The columns that say most come first: by what they add, or else by how far out they are.
export function cells(card, columns) {
  const reasons = new Map((card.reasons ?? []).map((reason) => [reason.column, reason]));
  const byName = new Map(card.cells.map((cell) => [cell.column, cell]));
  const names = [...reasons.values()].filter((r) => r.adds > 0).map((r) => r.column);
  const rest = card.cells.filter((cell) => !names.includes(cell.column));
  const order = card.reasons ? (cell) => (columns.has(cell.column) ? 0 : 1) : (cell) => cell.rarity ?? 2;
  rest.sort((a, b) => order(a) - order(b)); // columns that no model uses come last
  names.push(...rest.map((cell) => cell.column));
  const largest = Math.max(...[...reasons.values()].map((r) => Math.abs(r.adds)), 0);
  const lines = names.map((name) =>
    cellLine(name, byName.get(name), columns.get(name), reasons.get(name), largest));
  const shown = [cellTable(lines.slice(0, FIRST), card.reasons)];
  if (lines.length > FIRST) {
    const others = plural(lines.length - FIRST, "more column");
    shown.push(element("details", { class: "more-cells" },
      element("summary", {}, others), cellTable(lines.slice(FIRST), card.reasons)));
  }
  return shown;
}

function nearTable(kind, rows, card, columns, open) {
  const heading = kind === "normal" ? "Nearest normal rows" : "Nearest anomalies";
  const head = element("h3", { class: `head ${kind}` }, heading);
  if (!rows.length) {
    const none = kind === "normal" ? "No row is labelled normal yet." : "No anomaly is labelled yet.";
    return element("div", {}, head, element("p", { class: "small" }, none));
  }
  const titles = rows.map((row) => {
    const button = element("button", { type: "button", class: "small", "aria-label": `Row ${row.row}` }, row.row.toLocaleString("en"));
    button.addEventListener("click", () => open(row.row));
    return element("th", { scope: "col" }, button);
  });
  const own = new Map(card.cells.map((cell) => [cell.column, cell.text ?? ""]));
  const lines = columns.map((name) => element("tr", {},
    element("th", { scope: "row" }, fromData(name)),
    ...rows.map((row) => {
      const text = row.cells[name] ?? "";
      const same = text === own.get(name) ? { class: "this" } : {};
      return element("td", same, fromData(text));
    })));
  return element("div", {}, head, element("table", {},
    element("thead", {}, element("tr", {}, element("th", { scope: "col" }, "Row"), ...titles)),
    element("tbody", {}, ...lines)));
}

export function near(card, columns, open) {
  const reasons = (card.reasons ?? []).filter((r) => r.adds > 0).map((r) => r.column);
  const rare = card.cells.filter((cell) => columns.has(cell.column))
    .sort((a, b) => (a.rarity ?? 2) - (b.rarity ?? 2)).map((cell) => cell.column);
  const names = [...new Set([...reasons, ...rare])].filter((name) => columns.has(name)).slice(0, 6);
  return element("div", { class: "near" },
    ...["normal", "anomaly"].map((kind) => nearTable(kind, card.near[kind], card, names, open)));
}

export function said(card) {
  if (!card.said.length) return [];
  const words = card.said.map((one) => {
    const note = one.note ? [": “", fromData(one.note), "”"] : [];
    return element("li", { class: `tag ${one.label}` }, fromData(one.who), ` said ${one.label}`, ...note);
  });
  const list = element("ul", { class: "legend" }, ...words);
  if (!card.disputed) return [list];
  const told = element("p", { class: "told" }, "People disagree about this row. It has no label until they agree.");
  return [told, list];
}

export function model(told, state) {
  const parts = [];
  if (told.how === "outliers") {
    parts.push(element("p", {}, "No label was learned from yet: rows are ranked by how unlike the others they are."));
    const { normal, anomaly } = state.counts;
    const missing = [normal ? "" : "a normal row", anomaly ? "" : "an anomaly"].filter(Boolean);
    if (missing.length) {
      parts.push(element("p", { class: "small" }, `A model needs labels of both kinds. Still missing: ${missing.join(" and ")}.`));
    }
    return parts;
  }
  const labels = plural(told.labelled, "label");
  parts.push(element("p", {}, told.how === "model" ? "From the model file." : `Learned from ${labels}.`));
  const facts = [];
  const fact = (name, value, more) => facts.push(element("div", {},
    element("dt", {}, name), element("dd", { class: "number" }, value), element("dd", { class: "small" }, more)));
  if (told.auc) fact("AUC", told.auc[0].toFixed(3), `95% interval ${told.auc[1].toFixed(2)} to ${told.auc[2].toFixed(2)}`);
  if (told.rate) fact("Anomaly rate", percent(told.rate[0]), `95% interval ${percent(told.rate[1])} to ${percent(told.rate[2])}`);
  if (facts.length) parts.push(element("dl", {}, ...facts));
  if (!told.auc && told.why_no_auc) parts.push(element("p", { class: "small" }, `No AUC: ${told.why_no_auc}.`));
  if (told.members.length) {
    const lines = told.members.map((member) =>
      element("li", {}, `${member.member}: weight ${member.weight.toFixed(2)}`));
    parts.push(element("details", {}, element("summary", {}, plural(lines.length, "member")), element("ul", {}, ...lines)));
  }
  if (told.said.length) {
    const lines = told.said.map((text) => element("li", {}, fromData(text)));
    parts.push(element("details", {}, element("summary", {}, "Notes on the fit"), element("ul", {}, ...lines)));
  }
  return parts;
}

export function listed(rows, open) {
  const lines = rows.map((row) => {
    const button = element("button", { type: "button", class: "small", "aria-label": `Open row ${row.row}` }, row.row.toLocaleString("en"));
    button.addEventListener("click", () => open(row.row));
    const label = row.label || row.mine;
    return element("tr", {},
      element("td", {}, button),
      element("td", { class: "right" }, number(row.score)),
      element("td", {}, label ? element("span", { class: `tag ${label}` }, label) : null),
      element("td", { class: "text" }, row.id === null ? null : fromData(`${row.id} `), fromData(row.text)));
  });
  const heads = ["Row", "Score", "Label", "Values"].map((text, i) =>
    element("th", { scope: "col", class: i === 1 ? "right" : null }, text));
  return element("table", {}, element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...lines));
}
