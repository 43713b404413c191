// A layered drawing of a directed graph (after Sugiyama): layers by longest path, their order by
// barycentres, positions by least squares. Knows nothing of what the boxes mean.
"use strict";

const kLayerGap = 22, kBoxGap = 16, kSweeps = 10;

// boxes: [{width, height}], edges: [[from, to]]. Sets x and y, the centre of each box, and returns
// {width, height, routes}: the points of each edge, from the first box to the second.
function layOut(boxes, edges) {
  const nodes = boxes.map((box, i) => ({box, width: box.width, height: box.height, layer: 0,
                                        up: [], down: [], i}));
  const next = nodes.map(() => []), before = nodes.map(() => []);
  for (const [from, to] of edges) {
    next[from].push(to);
    before[to].push(from);
  }
  assignLayers(nodes, next, before);
  const paths = edges.map(() => null);
  const layers = insertBends(nodes, edges, next, paths);
  orderLayers(layers);
  place(layers);
  return finish(layers, boxes, nodes, paths);
}

function assignLayers(nodes, next, before) {
  const waiting = before.map(list => list.length), order = [];
  for (let i = 0; i < nodes.length; ++i)
    if (waiting[i] === 0) order.push(i);
  for (let at = 0; at < order.length; ++at)
    for (const to of next[order[at]]) {
      nodes[to].layer = Math.max(nodes[to].layer, nodes[order[at]].layer + 1);
      if (--waiting[to] === 0) order.push(to);
    }
  // What nothing precedes moves down to its first reader, so that its edges are short.
  for (const i of order)
    if (before[i].length === 0 && next[i].length > 0)
      nodes[i].layer = Math.max(0, Math.min(...next[i].map(to => nodes[to].layer)) - 1);
}

// Long edges bend in each layer that they pass. All edges out of one box share their bends.
function insertBends(nodes, edges, next, paths) {
  const layers = [];
  const add = node => (layers[node.layer] ||= []).push(node);
  nodes.forEach(add);
  const chains = nodes.map(() => []);
  const link = (upper, lower) => {
    if (upper.down.includes(lower)) return;
    upper.down.push(lower);
    lower.up.push(upper);
  };
  edges.forEach(([from, to], e) => {
    const chain = chains[from], bends = nodes[to].layer - nodes[from].layer - 1;
    while (chain.length < bends) {
      const bend = {width: 4, height: 0, layer: nodes[from].layer + chain.length + 1, up: [],
                    down: [], bend: true};
      link(chain.length ? chain[chain.length - 1] : nodes[from], bend);
      chain.push(bend);
      add(bend);
    }
    const path = [nodes[from], ...chain.slice(0, Math.max(0, bends)), nodes[to]];
    link(path[path.length - 2], nodes[to]);
    paths[e] = path;
  });
  for (let l = 0; l < layers.length; ++l) layers[l] ||= [];
  return layers;
}

const numberLayer = layer => layer.forEach((node, i) => node.at = i);

// Pairs of edges between a layer and the next that cross.
function crossings(layer) {
  let count = 0;
  const ends = [];  // of the edges so far, sorted
  for (const node of layer) {
    const own = node.down.map(d => d.at);
    for (const end of own) {
      let low = 0, high = ends.length;
      while (low < high) {
        const middle = (low + high) >> 1;
        if (ends[middle] <= end) low = middle + 1;
        else high = middle;
      }
      count += ends.length - low;
    }
    for (const end of own) ends.push(end);
    ends.sort((a, b) => a - b);
  }
  return count;
}

function orderLayers(layers) {
  layers.forEach(numberLayer);
  let best = layers.map(layer => [...layer]), fewest = Infinity;
  const sortBy = (layer, side) => {
    for (const node of layer)
      node.rank = node[side].length
          ? node[side].reduce((sum, n) => sum + n.at, 0) / node[side].length : node.at;
    layer.sort((a, b) => a.rank - b.rank || a.at - b.at);
    numberLayer(layer);
  };
  for (let sweep = 0; sweep < kSweeps && fewest > 0; ++sweep) {
    if (sweep % 2 === 0)
      for (let l = 1; l < layers.length; ++l) sortBy(layers[l], "up");
    else
      for (let l = layers.length - 2; l >= 0; --l) sortBy(layers[l], "down");
    const now = layers.reduce((sum, layer) => sum + crossings(layer), 0);
    if (now >= fewest) continue;
    fewest = now;
    best = layers.map(layer => [...layer]);
  }
  best.forEach((layer, l) => {
    layers[l] = layer;
    numberLayer(layer);
  });
}

// Moves the boxes of a layer as near to where they want to be (`wish`, with `weight`) as their order
// and their widths allow: pooling of neighbours that would overlap gives the least squares.
function spread(layer) {
  const pools = [];
  let offset = 0;
  layer.forEach((node, i) => {
    if (i > 0) offset += (layer[i - 1].width + node.width) / 2 + kBoxGap;
    node.offset = offset;
    pools.push({nodes: [node], weight: node.weight, at: node.wish - offset});
    while (pools.length > 1 && pools[pools.length - 2].at > pools[pools.length - 1].at) {
      const right = pools.pop(), left = pools[pools.length - 1];
      left.at = (left.at * left.weight + right.at * right.weight) / (left.weight + right.weight);
      left.weight += right.weight;
      for (const n of right.nodes) left.nodes.push(n);
    }
  });
  for (const pool of pools)
    for (const node of pool.nodes) node.x = pool.at + node.offset;
}

function place(layers) {
  for (const layer of layers) {
    for (const node of layer) Object.assign(node, {wish: 0, weight: 1});
    spread(layer);
  }
  const pull = (layer, sides) => {
    for (const node of layer) {
      let sum = 0, weight = 0;
      for (const side of sides)
        for (const n of node[side]) {
          const w = node.bend && n.bend ? 8 : node.bend || n.bend ? 2 : 1;  // long edges straight
          sum += w * n.x;
          weight += w;
        }
      node.wish = weight ? sum / weight : node.x;
      node.weight = Math.max(weight, 0.5);
    }
    spread(layer);
  };
  for (let sweep = 0; sweep < kSweeps; ++sweep) {
    const sides = sweep + 2 < kSweeps ? null : ["up", "down"];
    for (const layer of layers) pull(layer, sides || ["up"]);
    for (const layer of [...layers].reverse()) pull(layer, sides || ["down"]);
  }
}

function finish(layers, boxes, nodes, paths) {
  let left = Infinity, right = -Infinity, y = 0;
  for (const layer of layers) {
    const height = layer.reduce((most, node) => Math.max(most, node.height), 0);
    for (const node of layer) {
      node.y = y + height / 2;
      left = Math.min(left, node.x - node.width / 2);
      right = Math.max(right, node.x + node.width / 2);
    }
    y += height + kLayerGap;
  }
  for (const layer of layers)
    for (const node of layer) node.x -= left;
  nodes.forEach((node, i) => Object.assign(boxes[i], {x: node.x, y: node.y}));
  const routes = paths.map(path => path.map((node, i) => {
    const first = i === 0, last = i === path.length - 1;
    return [node.x, node.y + (first ? node.height / 2 : last ? -node.height / 2 : 0)];
  }));
  return {width: Math.max(0, right - left), height: Math.max(0, y - kLayerGap), routes};
}
