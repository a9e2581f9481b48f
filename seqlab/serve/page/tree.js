// A beam search as a tree, from left to right: pruned hypotheses are pale, the path of the best one is bold.
import {element, formatNumber, svg} from "./element.js"

const [PITCH, GAP] = [28, 36]

/** A figure of nodes [{piece, score, parent, fate, log_probability}]; `best` and `other` are paths: sets of indices. */
export function tree(nodes, {best, other, title}) {
  const all = [{piece: "start", parent: null, fate: "kept"},
    ...nodes.map(node => ({...node, parent: node.parent === null ? 0 : node.parent + 1}))]
  const bestPath = new Set([0, ...[...best].map(k => k + 1)]), otherPath = new Set([...other].map(k => k + 1))
  const {depth, y} = layOut(all)
  const ruler = element("canvas").getContext("2d")
  ruler.font = "13px system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif"
  const widths = all.map(node => 20 + ruler.measureText(node.piece).width + (node.score === undefined ? 0 : 48))
  const columnWidths = []
  all.forEach((_, k) => { columnWidths[depth[k]] = Math.max(columnWidths[depth[k]] ?? 0, widths[k]) })
  const starts = columnWidths.map((_, d) => 4 + columnWidths.slice(0, d).reduce((sum, room) => sum + room + GAP, 0))
  const [width, height] = [starts.at(-1) + columnWidths.at(-1) + 8, Math.max(...y) + PITCH]
  const drawn = svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, class: "tree", role: "img",
    "aria-label": title})
  const kind = k => `${all[k].fate} ${bestPath.has(k) ? "best" : ""} ${otherPath.has(k) ? "other" : ""}`
  const edges = svg("g"), boxes = svg("g")
  all.forEach((node, k) => {
    const x = starts[depth[k]]
    if (node.parent !== null) {
      const from = starts[depth[node.parent]] + widths[node.parent], middle = (from + x) / 2
      const [y1, y2] = [y[node.parent], y[k]], d = `M${from} ${y1}C${middle} ${y1} ${middle} ${y2} ${x} ${y2}`
      edges.append(svg("path", {d, class: `edge ${kind(k)}`}))
    }
    const box = svg("g", {class: `node ${kind(k)}`},
      svg("rect", {x, y: y[k] - 11, width: widths[k], height: 22, rx: 6}),
      svg("text", {x: x + 8, y: y[k] + 4}, node.piece))
    if (node.score !== undefined)
      box.append(svg("text", {x: x + widths[k] - 7, y: y[k] + 4, "text-anchor": "end", class: "score"},
        formatNumber(node.score)),
        svg("title", {}, `${node.piece}: ${node.fate}; log p ${formatNumber(node.log_probability)}, `
          + `sum ${formatNumber(node.score)}`))
    boxes.append(box)
  })
  drawn.append(edges, boxes)
  return element("figure", {class: "card"}, element("figcaption", {}, title),
    element("div", {class: "wide tree-box", tabIndex: 0, role: "group",
    "aria-label": "the tree; arrow keys scroll it"}, drawn))
}

/** A column for each step. A first child, which is the best, is placed at the height of its parent, so that the best
 *  path is nearly straight; all others are placed as high as there is room. */
function layOut(nodes) {
  const first = nodes.map(() => null), depth = [], free = [], y = []
  nodes.forEach((node, k) => {
    depth.push(node.parent === null ? 0 : depth[node.parent] + 1)
    if (node.parent !== null) first[node.parent] ??= k
  })
  const children = nodes.map(() => [])
  nodes.forEach((node, k) => { if (node.parent !== null) children[node.parent].push(k) })
  const waiting = [0]
  while (waiting.length) {
    const k = waiting.pop(), {parent} = nodes[k]
    if (y[k] === undefined) {
      let top = parent === null ? 18 : y[parent]
      for (let next = k; next !== null; next = first[next]) top = Math.max(top, free[depth[next]] ?? 0)
      for (let next = k; next !== null; next = first[next]) {
        y[next] = top
        free[depth[next]] = top + PITCH
      }
    }
    waiting.push(...children[k].toReversed())
  }
  return {depth, y}
}
