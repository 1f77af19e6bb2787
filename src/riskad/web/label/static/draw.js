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
    ...(cell?.picture ? [element("td", { class: "value", colspan: 2 }, fromData(value),
      element("div", { class: "seen" },
        element("img", { src: cell.picture, alt: "the picture" }),
        element("img", { src: cell.map, alt: "where it is unusual" })),
      element("button", { type: "button", class: "small map" }, "Where it is unusual ", element("kbd", {}, "v")))] : [
      element("td", { class: blank ? "value blank" : "value" }, blank ? value : fromData(value)),
      element("td", { class: "picture" }, cell ? picture(column, cell) : null)]),
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
      const seen = row.pictures?.[name];
      return element("td", same, seen ? element("img", { src: seen, alt: text }) : fromData(text));
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

const PANEL = 60; // pixels of a line of a series, with its name

// The series around a row. A stretch that is drawn with the pointer is marked when it is let go.
export function series(card, mark) {
  if (!card.series) return [];
  const { moments, lines, labels } = card.series;
  const low = moments[0];
  const span = moments.at(-1) - low || 1;
  const bottom = PANEL * lines.length;
  const percentOf = (moment) => `${((100 * (moment - low)) / span).toFixed(2)}%`;
  const names = lines.map((line) => line.name).join(", ");
  const svg = drawn("svg", {
    class: "series", width: "100%", height: bottom + 8, role: "img", "aria-label": `${names} around the row`,
  });
  const chosen = drawn("rect", { class: "stretch", y: 0, height: bottom + 8 });
  const place = ([from, to]) => {
    chosen.setAttribute("x", percentOf(from));
    chosen.setAttribute("width", `${((100 * (to - from)) / span).toFixed(2)}%`);
  };
  place(card.stretch ?? [low, low]);
  svg.append(chosen);
  lines.forEach((line, i) => {
    const values = line.values.filter((value) => value !== null);
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const inner = drawn("svg", { y: PANEL * i + 18, width: "100%", height: PANEL - 20, viewBox: "0 0 1000 40", preserveAspectRatio: "none" });
    let path = "";
    line.values.forEach((value, j) => {
      if (value === null) return;
      const gap = j && moments[j] - moments[j - 1] > card.series.window;
      const y = 39 - (38 * (value - least)) / (most - least || 1);
      path += `${path && !gap ? "L" : "M"}${((1000 * (moments[j] - low)) / span).toFixed(1)} ${y.toFixed(1)}`;
    });
    inner.append(drawn("path", { class: "moves", d: path }));
    const name = drawn("text", { class: "name", x: 0, y: PANEL * i + 13 });
    name.textContent = line.name.slice(0, 40);
    const ends = drawn("text", { x: "100%", y: PANEL * i + 13, "text-anchor": "end" });
    ends.textContent = values.length ? `${number(least, 4)} to ${number(most, 4)}` : "blank";
    svg.append(inner, name, ends);
  });
  labels.forEach((label, j) => {
    if (label) svg.append(drawn("line", { class: `tick ${label}`, x1: percentOf(moments[j]), x2: percentOf(moments[j]), y1: bottom, y2: bottom + 8 }));
  });
  svg.append(drawn("line", { class: "threshold", x1: percentOf(0), x2: percentOf(0), y1: 0, y2: bottom + 8 }));
  let from = null;
  const momentAt = (event) => {
    const box = svg.getBoundingClientRect();
    return low + (span * Math.min(Math.max(event.clientX - box.left, 0), box.width)) / box.width;
  };
  const stretch = (event) => [from, momentAt(event)].sort((a, b) => a - b);
  svg.addEventListener("pointerdown", (event) => {
    from = momentAt(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => from !== null && place(stretch(event)));
  svg.addEventListener("pointerup", (event) => {
    const drawnOver = stretch(event);
    from = null;
    mark(drawnOver[1] > drawnOver[0] ? drawnOver : null);
  });
  const n = stretchOf(card).length;
  const words = card.stretch
    ? `A stretch is marked: your answer is about this row and ${plural(n, "other")} without a label.`
    : "To answer for a stretch, draw over it, or press w.";
  return [svg, element("p", { class: "small" }, fromData(card.series.caption)), element("p", { class: "small" }, words)];
}

// The other rows of the marked stretch that have no label.
export function stretchOf(card) {
  if (!card.stretch || !card.series) return [];
  const { rows, moments, labels } = card.series;
  const [from, to] = card.stretch;
  return rows.filter((row, j) =>
    row !== card.row && !labels[j] && moments[j] >= from && moments[j] <= to);
}

export function answers(card) {
  if (!card.answers.length) return [];
  const words = card.answers.map((one) => {
    const note = one.note ? [": “", fromData(one.note), "”"] : [];
    return element("li", { class: `tag ${one.label}` }, fromData(one.who), ` said ${one.label}`, ...note);
  });
  const list = element("ul", { class: "legend" }, ...words);
  if (!card.disputed) return [list];
  const dispute = element("p", { class: "notice" }, "People disagree about this row. It has no label until they agree.");
  return [dispute, list];
}

export function model(result, state) {
  const parts = [];
  if (result.how === "outliers") {
    parts.push(element("p", {}, "No label was learned from yet: rows are ranked by how unlike the others they are."));
    const { normal, anomaly } = state.counts;
    const missing = [normal ? "" : "a normal row", anomaly ? "" : "an anomaly"].filter(Boolean);
    if (missing.length) {
      parts.push(element("p", { class: "small" }, `A model needs labels of both kinds. Still missing: ${missing.join(" and ")}.`));
    }
    return parts;
  }
  const labels = plural(result.labelled, "label");
  parts.push(element("p", {}, result.how === "model" ? "From the model file." : `Learned from ${labels}.`));
  const facts = [];
  const fact = (name, value, more) => facts.push(element("div", {},
    element("dt", {}, name), element("dd", { class: "number" }, value), element("dd", { class: "small" }, more)));
  if (result.auc) fact("AUC", result.auc[0].toFixed(3), `95% interval ${result.auc[1].toFixed(2)} to ${result.auc[2].toFixed(2)}`);
  if (result.rate) fact("Anomaly rate", percent(result.rate[0]), `95% interval ${percent(result.rate[1])} to ${percent(result.rate[2])}`);
  if (facts.length) parts.push(element("dl", {}, ...facts));
  if (!result.auc && result.why_no_auc) parts.push(element("p", { class: "small" }, `No AUC: ${result.why_no_auc}.`));
  if (result.members.length) {
    const lines = result.members.map((member) =>
      element("li", {}, `${member.member}: weight ${member.weight.toFixed(2)}`));
    parts.push(element("details", {}, element("summary", {}, plural(lines.length, "member")), element("ul", {}, ...lines)));
  }
  if (result.notes.length) {
    const lines = result.notes.map((text) => element("li", {}, fromData(text)));
    parts.push(element("details", {}, element("summary", {}, "Notes on the fit"), element("ul", {}, ...lines)));
  }
  return parts;
}

// What a rule of the known harmless would hide, and what speaks against it.
export function effect(found, row, open) {
  const { rows, matching, scored, flagged, likely, labels, lines } = found;
  const parts = [element("p", {}, element("strong", {}, plural(matching, "row")),
    ` of ${rows.toLocaleString("en")} ${matching === 1 ? "matches" : "match"}, ${flagged.toLocaleString("en")} of them flagged`,
    scored < rows ? ` (of ${scored.toLocaleString("en")} rows with scores)` : "",
    labels.normal ? `; ${labels.normal.toLocaleString("en")} labelled normal.` : ".")];
  const warn = (text) => parts.push(element("p", { class: "notice" }, text));
  if (labels.anomaly) warn(`It would hide ${plural(labels.anomaly, "row")} labelled as ${labels.anomaly === 1 ? "an anomaly" : "anomalies"}.`);
  if (likely) warn(`It would hide ${plural(likely, "row")} with an anomaly probability above 50%.`);
  const others = lines.filter((line) => line.row !== row);
  if (others.length) parts.push(element("p", { class: "small" }, "Besides this row, highest scores first:"), listed(others, open));
  else if (matching) parts.push(element("p", { class: "small" }, "No other row matches."));
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
