// The views that are text: the kernel that is shown with its source, the table, the cuts.
"use strict";

const kMostRows = 1000, kMostCuts = 200, kMostReasons = 3;

// ---- the table of kernels

const tableColumns = () => [
  ["#", (kernel, k) => k], ["kernel", kernel => kernel.family],
  ["nodes", kernel => listText(kernel.nodes, 6)], ["line", kernel => kernel.lines],
  ["us (est.)", kernel => usText(kernel.estimated_us)],
  ...(measured ? [["us measured", kernel => usText(kernel.measured_us)]] : []),
  ["share", kernel => `${(100 * timeOf(kernel) / Math.max(allTime, 1e-9)).toFixed(0)} %`],
  ["bytes", kernel => bytesText(kernel.bytes)],
];

function showTable() {
  const root = document.getElementById("list");
  const head = element("tr", {}, root.querySelector("thead"));
  for (const [name] of tableColumns()) element("th", {}, head, name);
  fillTable(0);
}

function fillTable(first) {
  const root = document.getElementById("list"), body = root.querySelector("tbody");
  const rows = data.kernels.slice(first, first + kMostRows), columns = tableColumns();
  forget(body);
  body.replaceChildren();
  rows.forEach((kernel, i) => {
    const row = element("tr", {tabindex: 0}, body);
    row.style.setProperty("--hue", hue(first + i));
    columns.forEach(([name, cell]) => element("td", {}, row, cell(kernel, first + i)));
    row.cells[2].title = kernel.nodes.join(", ");
    clickable(body, "kernel", first + i, row);
    row.onkeydown = event => {
      if (event.key === "Enter") row.click();
    };
  });
  root.querySelector(".note").textContent = rows.length === data.kernels.length ? "" :
      `rows ${first} to ${first + rows.length - 1} of ${data.kernels.length}; select a kernel to see those around it`;
}

function showRow(kernel) {
  const body = document.querySelector("#list tbody");
  if (kernel < 0) return;
  if (!find(body, "kernel", kernel))
    fillTable(Math.max(0, Math.min(kernel - kMostRows / 2, data.kernels.length - kMostRows)));
  const row = find(body, "kernel", kernel), box = document.querySelector("#list .scroll");
  if (row.offsetTop < box.scrollTop || row.offsetTop + row.offsetHeight > box.scrollTop + box.clientHeight)
    box.scrollTop = row.offsetTop - box.clientHeight / 2;
}

// ---- one kernel

function showKernel(k, selected) {
  const root = document.getElementById("selected"), facts = document.getElementById("facts");
  const source = document.getElementById("source"), kernel = data.kernels[k];
  forget(root);
  facts.replaceChildren();
  source.replaceChildren();
  root.querySelector("h2").textContent = kernel ? `Kernel ${k}` : "No kernel";
  if (selected && selected.kind !== "kernel") fact(facts, selected.kind, subject(selected));
  if (!kernel) return;
  root.style.setProperty("--hue", hue(k));
  fact(facts, "name", kernel.entry);
  const nodes = fact(facts, "nodes", "");
  kernel.nodes.slice(0, 40).forEach(n => clickable(root, "node", n, element("span", {class: "name"}, nodes, n)));
  if (kernel.nodes.length > 40) element("span", {}, nodes, `, ${kernel.nodes.length - 40} more`);
  if (kernel.lines) fact(facts, "lines", `${kernel.lines} of ${data.file}`);
  for (const [what, written] of [["reads", false], ["writes", true]]) {
    const list = fact(facts, what, "");
    for (const a of kernel.accesses.filter(access => access.written === written))
      clickable(root, "tensor", keyOf(a), element("span", {class: "name"}, list, `${a.tensor} ${bytesText(a.bytes)}`));
  }
  const timed = measured ? `, ${usText(kernel.measured_us)} us measured` : "";
  const worked = kernel.flops > 0 ? `, ${kernel.flops.toExponential(2)} operations` : "";
  fact(facts, "costs", `${usText(kernel.estimated_us)} us estimated${timed}, ${bytesText(kernel.bytes)} moved${worked}`);
  const shared = kernel.shared_bytes ? `, ${kernel.shared_bytes} bytes of shared memory` : "";
  fact(facts, "launch", `${kernel.grid} ${kernel.grid === 1 ? "block" : "blocks"} of ${kernel.block} threads${shared}`);
  fact(facts, "how", kernel.how);
  showSource(root, source, kernel);
}

function fact(parent, name, text) {
  const row = element("div", {class: "fact"}, parent);
  element("b", {}, row, name);
  return element("span", {}, row, text);
}

function subject({kind, key}) {
  if (kind === "tensor") return use(key).tip;
  const node = data.nodes.find(n => n.name === key);
  return node ? nodeItem(node).tip : key;
}

// The text of a kernel, in which the graph's tensors are marked. Their identifiers are those of the
// generator, or have a number behind them; structs that describe accesses have them in PascalCase.
function showSource(root, parent, kernel) {
  const names = new Map();
  const near = new Set(kernel.accesses.map(a => a.tensor));
  const inside = new Set(kernel.nodes);
  for (const node of data.nodes)
    if (inside.has(node.name))
      for (const t of [...Object.values(node.inputs), ...Object.values(node.outputs)]) near.add(t);
  for (const name of near) {
    const t = tensorOf.get(name);
    if (!t) continue;
    names.set(t.identifier, name);
    const pascal = t.identifier.split("_").map(w => w && w[0].toUpperCase() + w.slice(1)).join("");
    names.set(pascal + "Access", name);
  }
  const token = /\/\/[^\n]*|"[^"\n]*"|[A-Za-z_]\w*|\d[\w.']*|[\s\S]/g;
  let plain = "";
  const flush = () => {
    parent.append(plain);
    plain = "";
  };
  for (const [text] of kernel.source.matchAll(token)) {
    const tensor = names.get(text) ?? names.get(text.replace(/_\d+$/, ""));
    const kind = text.startsWith("//") ? "comment" : text[0] === '"' && text.length > 1 ? "string"
        : kKeywords.has(text) ? "keyword" : "";
    if (tensor !== undefined) {
      flush();
      const e = element("span", {class: "name", title: use(tensor).tip}, parent, text);
      clickable(root, "tensor", tensor, e);
    } else if (kind) {
      flush();
      element("span", {class: kind}, parent, text);
    } else {
      plain += text;
    }
  }
  flush();
}

const kKeywords = new Set(("bool const constexpr double else extern false float for if inline int long " +
    "namespace return sizeof static struct template true typename unsigned using void while " +
    "__global__ __launch_bounds__ __grid_constant__ SINTER_DEVICE").split(" "));

// ---- cuts

const distinct = list => [...new Set(list.filter(text => text))];

function sentenceOf(cut) {
  if (!cut.with) return `${cut.node}: ${cut.reason}`;
  if (cut.node === cut.with) return `parts of ${cut.node} stay apart: ${cut.reason}`;
  return `${cut.node} stays out of the kernel of ${cut.with}: ${cut.reason}`;
}

function showCuts() {
  const root = document.getElementById("cuts"), list = root.querySelector("ol");
  const shown = data.costs.slice(0, kMostCuts);
  root.querySelector(".note").textContent = data.costs.length === 0 ? "Nothing more than one kernel would move." :
      "Worst first; the time is that of the traffic and of a launch" +
      (shown.length < data.costs.length ? `; the first ${shown.length} of ${data.costs.length}.` : ".");
  for (const cost of shown) {
    const item = element("li", {}, list), head = element("div", {}, item);
    const name = element("span", {class: "name"}, head, cost.tensor);
    clickable(root, "tensor", cost.inside ? `inside ${cost.name}` : cost.name, name);
    element("span", {}, head, ` ${cost.data_type}, ${bytesText(cost.bytes)}, ${usText(cost.us)} us `);
    const links = (text, kernels) => {
      if (!kernels.length) return;
      element("span", {}, head, text);
      kernels.slice(0, 12).forEach(k => {
        const e = element("span", {class: "chip"}, head, k);
        e.style.setProperty("--hue", hue(k));
        clickable(root, "kernel", k, e);
      });
      if (kernels.length > 12) element("span", {}, head, ` and ${kernels.length - 12} more `);
    };
    links("from ", cost.written_by);
    links(cost.written_by.length ? " to " : "read by ", cost.read_by);
    const reasons = distinct(cost.cuts.map(sentenceOf)), fixes = distinct(cost.cuts.map(cut => cut.fix));
    if (reasons.length === 0)
      reasons.push(data.kernels.some(k => k.nodes.length > 1) ? "no fusion pattern covers both what writes it and what reads it"
                                                              : "each node is a kernel of its own");
    reasons.slice(0, kMostReasons).forEach(text => element("p", {}, item, text));
    if (reasons.length > kMostReasons) element("p", {}, item, `${reasons.length - kMostReasons} more reasons (--json)`);
    fixes.slice(0, kMostReasons).forEach(text => element("p", {class: "fix"}, item, `to remove it: ${text}`));
  }
  for (const hint of data.hints.slice(0, kMostCuts))
    element("p", {class: "fix"}, root, `tensor ${hint.tensor} is stored as ${hint.stored_as}: ${hint.narrow} would save ` +
            `${bytesText(hint.saved_bytes)} (${usText(hint.saved_us)} us)`);
}
