// A graph in a pane: drawn boxes and tensors, pan by drag, zoom by wheel.
"use strict";

const kMostDrawn = 400;  // boxes at once: more can neither be read nor laid out quickly
const kLeastScale = 0.02, kMostScale = 4, kReadable = 0.55, kUnfitted = 0.75;

const textMeasure = document.createElement("canvas").getContext("2d");
function textWidth(text, font) {
  textMeasure.font = font;
  return textMeasure.measureText(text).width;
}
const kTitleFont = "600 12px system-ui, sans-serif", kLineFont = "11px system-ui, sans-serif";

// items: [{kind, key, title, lines, kernels, reads, writes, share}], of which `reads` and `writes`
// are [{key, label, bytes}]. A tensor is a label between the box that writes it and those that read it.
class GraphPane {
  constructor(root, what, items) {
    Object.assign(this, {root, what, items, first: 0});
    this.svg = root.querySelector("svg");
    this.scene = svgElement("g", {}, this.svg);
    this.note = root.querySelector(".note");
    root.querySelector(".fit").onclick = () => this.fit(true);
    root.querySelector(".in").onclick = () => this.zoom(1.4);
    root.querySelector(".out").onclick = () => this.zoom(1 / 1.4);
    this.listen();
    this.draw();
  }

  draw() {
    forget(this);
    this.scene.replaceChildren();
    const drawn = this.items.slice(this.first, this.first + kMostDrawn);
    const boxes = [], edges = [], tensors = new Map();
    for (const item of drawn) boxes.push(this.boxOf(item));
    drawn.forEach((item, i) => {
      const tensorBox = use => {
        if (!tensors.has(use.key)) {
          tensors.set(use.key, boxes.length);
          boxes.push({tensor: use, label: shorten(use.label, 40), uses: [], height: 17,
                      width: textWidth(shorten(use.label, 40), kLineFont) + 12});
        }
        return tensors.get(use.key);
      };
      for (const use of item.writes) edges.push([i, tensorBox(use)]);
      for (const use of item.reads) edges.push([tensorBox(use), i]);
    });
    const seen = new Set(), single = edges.filter(([from, to]) => {
      const key = from * boxes.length + to;
      return seen.has(key) ? false : seen.add(key);
    });
    const result = layOut(boxes, single);
    this.size = result;
    single.forEach(([from, to], e) => {
      const tensor = boxes[from].tensor || boxes[to].tensor;
      const path = svgElement("path", {class: "edge", d: curve(result.routes[e])}, this.scene);
      remember(this, "tensor", tensor.key, path);
    });
    for (const box of boxes)
      if (box.tensor) this.drawTensor(box);
      else this.drawBox(box);
    this.tell(drawn.length);
    this.fit(false);
  }

  boxOf(item) {
    const width = Math.max(textWidth(item.title, kTitleFont),
                           ...item.lines.map(line => textWidth(line, kLineFont)));
    return {item, width: width + 20, height: 20 + 14 * item.lines.length};
  }

  drawTensor(box) {
    const {x, y, width, height, tensor} = box;
    const group = svgElement("g", {class: "tensor " + (tensor.role || "")}, this.scene);
    svgElement("rect", {x: x - width / 2, y: y - height / 2, width, height, rx: 8}, group);
    svgElement("text", {x, y: y + 4}, group).textContent = box.label;
    svgElement("title", {}, group).textContent = tensor.tip || tensor.label;
    clickable(this, "tensor", tensor.key, group);
  }

  drawBox(box) {
    const {x, y, width, height, item} = box;
    const group = svgElement("g", {class: "box " + item.kind}, this.scene);
    if (item.kernels.length) group.style.setProperty("--hue", hue(item.kernels[0]));
    else group.classList.add("nowhere");
    const top = y - height / 2;
    svgElement("rect", {x: x - width / 2, y: top, width, height, rx: 4}, group);
    svgElement("text", {x, y: top + 14, class: "title"}, group).textContent = item.title;
    item.lines.forEach((line, i) =>
        svgElement("text", {x, y: top + 28 + 14 * i}, group).textContent = line);
    if (item.share !== undefined)  // of the time, along the lower edge
      svgElement("rect", {x: x - width / 2, y: top + height - 3, class: "share", height: 3,
                          width: Math.max(1, width * Math.min(1, item.share))}, group);
    if (item.kernels.length > 1)  // a dot for each kernel that computes a part of it
      item.kernels.slice(0, 12).forEach((k, i) =>
          svgElement("circle", {cx: x - width / 2 + 7 + 9 * i, cy: top + height, r: 4, class: "part"},
                     group).style.setProperty("--hue", hue(k)));
    svgElement("title", {}, group).textContent = item.tip;
    clickable(this, item.kind, item.key, group);
  }

  tell(count) {
    this.note.replaceChildren();
    if (count === this.items.length) {
      this.note.textContent = count === 1 ? `1 ${this.what.slice(0, -1)}` : `${count} ${this.what}`;
      return;
    }
    const step = by => {
      const last = Math.max(0, this.items.length - kMostDrawn);
      this.first = Math.min(last, Math.max(0, this.first + by));
      this.draw();
      refresh();
    };
    const button = (text, by, title) => {
      const b = element("button", {type: "button", title}, this.note, text);
      b.onclick = () => step(by);
    };
    button("\u2039", -kMostDrawn, "earlier ones");
    element("span", {title: `at most ${kMostDrawn} are drawn at once; a selection brings its own`}, this.note,
            ` ${this.first}\u2013${this.first + count - 1} of ${this.items.length} drawn `);
    button("\u203a", kMostDrawn, "later ones");
  }

  // Draws the part that holds the item, where it is not drawn; brings it to the middle.
  show(key) {
    const at = this.items.findIndex(item => item.key === key);
    if (at < 0) return;
    if (at < this.first || at >= this.first + kMostDrawn) {
      this.first = Math.max(0, Math.min(at - kMostDrawn / 2, this.items.length - kMostDrawn));
      this.draw();
    }
    const target = find(this, this.items[at].kind, key);
    if (!target) return;
    const box = target.getBoundingClientRect(), pane = this.svg.getBoundingClientRect();
    const inside = box.left >= pane.left && box.right <= pane.right && box.top >= pane.top &&
                   box.bottom <= pane.bottom;
    if (inside || pane.width === 0) return;
    this.x += pane.left + pane.width / 2 - (box.left + box.right) / 2;
    this.y += pane.top + pane.height / 2 - (box.top + box.bottom) / 2;
    this.move();
  }

  // `all`: the whole graph; else its upper part where the whole would be too small to read.
  fit(all) {
    const pane = this.svg.getBoundingClientRect();
    const {width, height} = this.size, across = (pane.width - 24) / Math.max(1, width);
    const whole = Math.min(1.2, across, (pane.height - 24) / Math.max(1, height));
    const readable = Math.min(1, across < kReadable ? kUnfitted : across);
    this.scale = Math.max(kLeastScale, all || whole > kReadable ? whole : readable);
    this.x = (pane.width - width * this.scale) / 2;
    this.y = Math.max(12, (pane.height - height * this.scale) / 2);
    this.move();
  }

  move() {
    this.scene.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
  }

  zoom(by, x = this.svg.clientWidth / 2, y = this.svg.clientHeight / 2) {
    const scale = Math.min(kMostScale, Math.max(kLeastScale, this.scale * by));
    this.x = x - (x - this.x) * scale / this.scale;
    this.y = y - (y - this.y) * scale / this.scale;
    this.scale = scale;
    this.move();
  }

  listen() {
    this.svg.addEventListener("wheel", event => {
      event.preventDefault();
      const pane = this.svg.getBoundingClientRect();
      this.zoom(Math.exp(-event.deltaY / 400), event.clientX - pane.left, event.clientY - pane.top);
    }, {passive: false});
    this.svg.addEventListener("pointerdown", event => {
      if (event.button !== 0) return;
      this.drag = {x: event.clientX, y: event.clientY, moved: false};
    });
    this.svg.addEventListener("pointermove", event => {
      if (!this.drag || event.buttons === 0) return;
      const dx = event.clientX - this.drag.x, dy = event.clientY - this.drag.y;
      if (!this.drag.moved && Math.hypot(dx, dy) < 4) return;
      if (!this.drag.moved) this.svg.setPointerCapture(event.pointerId);
      this.drag = {x: event.clientX, y: event.clientY, moved: true};
      this.x += dx;
      this.y += dy;
      this.move();
    });
    // The click that ends a drag selects nothing.
    this.svg.addEventListener("click", event => {
      if (this.drag && this.drag.moved) event.stopImmediatePropagation();
      else if (event.target === this.svg) select(null);
      this.drag = null;
    }, true);
  }
}

// Through the points, upright at each.
function curve(points) {
  let d = `M${points[0][0]} ${points[0][1]}`;
  for (let i = 1; i < points.length; ++i) {
    const [x0, y0] = points[i - 1], [x, y] = points[i], middle = (y0 + y) / 2;
    d += `C${x0} ${middle} ${x} ${middle} ${x} ${y}`;
  }
  return d;
}
