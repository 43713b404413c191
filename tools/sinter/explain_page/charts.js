// Kernels on a roofline, and the workspace over time.
"use strict";

const kMostPoints = 500, kMostIntervals = 1500;

function svgText(parent, x, y, text, attributes = {}) {
  const e = svgElement("text", {x, y, ...attributes}, parent);
  e.textContent = text;
  return e;
}

const kTypeBytes = {f64: 8, i64: 8, f32: 4, i32: 4, bf16: 2, f16: 2};

// Planning counts the operations of products alone. A kernel without one does at least one for each
// element that it moves.
function operationsOf(kernel) {
  if (kernel.flops > 0) return kernel.flops;
  return kernel.accesses.reduce((sum, a) => sum + a.bytes / (kTypeBytes[a.data_type] || 1), 0);
}

function rateText(perSecond) {
  for (const [unit, size] of [["P", 1e15], ["T", 1e12], ["G", 1e9], ["M", 1e6], ["k", 1e3]])
    if (perSecond >= size) return `${Number((perSecond / size).toPrecision(3))} ${unit}`;
  return `${Number(perSecond.toPrecision(2))} `;
}

// The chart's drawing area: as many units as it has pixels, so that text has one size everywhere.
function chartOf(root) {
  const svg = root.querySelector("svg"), width = Math.max(420, svg.clientWidth);
  svg.setAttribute("viewBox", `0 0 ${width} 400`);
  return {svg, left: 66, right: width - 20, top: 12, bottom: 356};
}

function drawRoofline(root) {
  const {svg, left, right, top, bottom} = chartOf(root);
  const bandwidth = data.ceilings.bytes_per_us * 1e6;  // a second
  const narrow = data.kernels.some(k => k.flops > 0 && k.accesses.some(a => /^(f8|i8|u8)/.test(a.data_type)));
  const flat = [["CUDA cores, f32", data.ceilings.ordinary_operations_per_us * 1e6],
                ["tensor cores, 16 bits", data.ceilings.tensor_operations_per_us * 1e6]];
  if (narrow) flat.push(["tensor cores, 8 bits", data.ceilings.tensor_operations_per_us * 2e6]);
  const points = data.kernels.map((kernel, k) => {
    const operations = operationsOf(kernel);
    return {k, kernel, x: operations / kernel.bytes, y: operations / (timeOf(kernel) * 1e-6),
            time: timeOf(kernel)};
  }).filter(p => p.x > 0 && p.y > 0 && isFinite(p.x) && isFinite(p.y));
  points.sort((a, b) => b.time - a.time || a.k - b.k);
  const drawn = points.slice(0, kMostPoints), highest = flat[flat.length - 1][1];
  const decade = (values, round) => round(Math.log10(values));
  const x0 = decade(Math.min(0.1, ...drawn.map(p => p.x)), Math.floor);
  const x1 = decade(Math.max(1e3, ...drawn.map(p => p.x)), Math.ceil);
  const y0 = decade(Math.min(bandwidth / 10, ...drawn.map(p => p.y)), Math.floor);
  const y1 = decade(Math.max(highest * 1.5, ...drawn.map(p => p.y)), Math.ceil);
  const px = x => left + (Math.log10(x) - x0) / (x1 - x0) * (right - left);
  const py = y => bottom - (Math.log10(y) - y0) / (y1 - y0) * (bottom - top);

  for (let d = x0; d <= x1; ++d) {
    svgElement("path", {class: "grid", d: `M${px(10 ** d)} ${top}V${bottom}`}, svg);
    svgText(svg, px(10 ** d), bottom + 15, Number((10 ** d).toPrecision(1)), {class: "axis middle"});
  }
  for (let d = y0; d <= y1; ++d) {
    svgElement("path", {class: "grid", d: `M${left} ${py(10 ** d)}H${right}`}, svg);
    svgText(svg, left - 6, py(10 ** d) + 4, rateText(10 ** d), {class: "axis end"});
  }
  svgText(svg, (left + right) / 2, bottom + 34, "operations for each byte that memory moves", {class: "axis middle"});
  svgText(svg, left + 6, top + 10, "operations a second", {class: "axis"});

  // The memory's line up to the highest flat one; each flat one from where it meets that.
  const start = Math.max(10 ** x0, 10 ** y0 / bandwidth), knee = highest / bandwidth;
  svgElement("path", {class: "ceiling", d: `M${px(start)} ${py(start * bandwidth)}L${px(knee)} ${py(highest)}`}, svg);
  const slope = Math.atan2(py(10) - py(1), px(10) - px(1)) * 180 / Math.PI;
  const at = [px(start * 6), py(start * 6 * bandwidth) - 6];
  svgText(svg, ...at, `memory, ${rateText(bandwidth)}B/s`, {class: "ceiling-name", transform: `rotate(${slope} ${at[0]} ${at[1]})`});
  for (const [name, rate] of flat) {
    svgElement("path", {class: "ceiling", d: `M${px(rate / bandwidth)} ${py(rate)}H${right}`}, svg);
    svgText(svg, right, py(rate) - 5, `${name}, ${rateText(rate)}`, {class: "ceiling-name end"});
  }
  drawPoints(root, svg, drawn, px, py);
  const left_out = drawn.length < points.length ? ` The ${drawn.length} costliest of ${points.length} kernels.` : "";
  root.querySelector(".note").textContent = `Ceilings: ${data.device}. Times: ${measured ? "measured" : "estimated"}, with the ` +
      `launch. Areas: share of the time. Hollow: no product, drawn at one operation an element moved.${left_out}`;
}

// The largest first, so that small ones lie on top; a number beside each where there is room.
function drawPoints(root, svg, points, px, py) {
  const taken = points.map(p => [px(p.x) - 4, py(p.y) - 4, px(p.x) + 4, py(p.y) + 4]);
  for (const p of points) {
    const x = px(p.x), y = py(p.y), share = p.time / Math.max(allTime, 1e-9);
    const group = svgElement("g", {class: p.kernel.flops > 0 ? "point" : "point hollow"}, svg);
    group.style.setProperty("--hue", hue(p.k));
    const radius = 4 + 14 * Math.sqrt(share);
    svgElement("circle", {cx: x, cy: y, r: radius}, group);
    svgElement("title", {}, group).textContent = `kernel ${p.k}, ${p.kernel.family}: ${listText(p.kernel.nodes, 6)}\n` +
        `${usText(p.time)} us, ${rateText(p.y)}operations/s, ${rateText(p.y / p.x)}B/s`;
    clickable(root, "kernel", p.k, group);
    const text = String(p.k), width = 7 * text.length;
    for (const [dx, dy] of [[0, -1], [1, 0], [-1, 0], [0, 1], [1, -1], [-1, -1], [1, 1], [-1, 1]]) {
      const lx = x + dx * (radius + 3 + width / 2), ly = y + dy * (radius + 7);
      const box = [lx - width / 2, ly - 6, lx + width / 2, ly + 6];
      if (taken.some(t => t[0] < box[2] && t[2] > box[0] && t[1] < box[3] && t[3] > box[1])) continue;
      taken.push(box);
      svgText(group, lx, ly + 4, text, {class: "middle"});
      break;
    }
  }
}

// Each tensor in the workspace as an interval: from the first kernel that touches it to the last, at
// its place in memory.
function drawMemory(root) {
  const {svg, left, right, top, bottom} = chartOf(root);
  const note = root.querySelector(".note"), kernels = data.kernels.length;
  if (data.buffers.length === 0) {
    svg.remove();
    note.textContent = "No workspace: no tensor passes between kernels.";
    return;
  }
  const buffers = [...data.buffers].sort((a, b) => b.bytes - a.bytes || a.offset - b.offset || a.first - b.first);
  const drawn = buffers.slice(0, kMostIntervals), most = Math.max(1, data.workspace_bytes);
  const px = k => left + k / kernels * (right - left), py = n => bottom - n / most * (bottom - top);
  const step = Math.ceil(kernels / 24);
  for (let k = 0; k < kernels; k += step) {
    svgElement("path", {class: "grid", d: `M${px(k)} ${top}V${bottom}`}, svg);
    svgText(svg, px(k + 0.5), bottom + 15, k, {class: "axis middle"});
  }
  for (let i = 0; i <= 4; ++i) {
    svgElement("path", {class: "grid", d: `M${left} ${py(most * i / 4)}H${right}`}, svg);
    svgText(svg, left - 6, py(most * i / 4) + 4, bytesText(Math.round(most * i / 4)), {class: "axis end"});
  }
  svgText(svg, (left + right) / 2, bottom + 34, "kernel", {class: "axis middle"});
  if (data.peak.kernel >= 0 && kernels <= 200) {
    const peak = svgElement("rect", {class: "peak", x: px(data.peak.kernel), y: top, height: bottom - top,
                                     width: px(1) - px(0)}, svg);
    svgElement("title", {}, peak).textContent = `most in use: ${bytesText(data.peak.bytes)} during kernel ${data.peak.kernel}`;
  }
  const writer = new Map();
  data.kernels.forEach((kernel, k) => kernel.accesses.forEach(a => {
    if (a.workspace && a.written && !writer.has(keyOf(a))) writer.set(keyOf(a), k);
  }));
  svg.classList.toggle("dense", px(1) - px(0) < 4);  // outlines would hide what they surround
  for (const b of drawn) {
    const key = keyOf({...b, tensor: b.name, workspace: true});
    const x = px(b.first), width = px(b.last + 1) - x, y = py(b.offset + b.bytes), height = py(b.offset) - y;
    const group = svgElement("g", {class: "interval"}, svg);
    group.style.setProperty("--hue", hue(writer.get(key) ?? b.first));
    svgElement("rect", {x: x + 1, y, width: Math.max(1, width - 2), height: Math.max(0.5, height)}, group);
    svgElement("title", {}, group).textContent =
        `${b.name}${b.inside ? `, inside ${b.inside}` : ""}: ${b.data_type}, ${bytesText(b.bytes)}, kernels ${b.first} to ${b.last}`;
    const text = shorten(b.name, Math.max(1, Math.floor((width - 6) / 6.2)));
    if (height >= 13 && (text === b.name || text.length > 3)) svgText(group, x + width / 2, y + height / 2 + 4, text, {class: "middle"});
    clickable(root, "tensor", key, group);
  }
  note.textContent = `Tensors between kernels at their places in the workspace, coloured by the kernel that writes them. Most in use: ` +
      `${bytesText(data.peak.bytes)} of ${bytesText(data.workspace_bytes)} during kernel ${data.peak.kernel}.` +
      (drawn.length < buffers.length ? ` The largest ${drawn.length} of ${buffers.length} are drawn.` : "");
}
