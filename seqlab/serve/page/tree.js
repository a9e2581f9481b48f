// A search as a tree, from left to right: what was given up is pale, the path that won is strong.
import {element, shown, svg} from "./element.js"

const [PITCH, GAP] = [28, 36]

/** A figure of nodes [{piece, score, parent, fate, log_probability}]; `best` and `other` are sets of places: two paths. */
export function tree(nodes, {best, other, title}) {
  const all = [{piece: "start", parent: null, fate: "kept"}, ...nodes.map(node => ({...node, parent: node.parent === null ? 0 : node.parent + 1}))]
  const strong = new Set([0, ...[...best].map(k => k + 1)]), second = new Set([0, ...[...other].map(k => k + 1)])
  const {depth, y} = places(all)
  const ruler = element("canvas").getContext("2d")
  ruler.font = "13px system-ui, 'Noto Sans', 'DejaVu Sans', sans-serif"
  const wide = all.map(node => 20 + ruler.measureText(node.piece).width + (node.score === undefined ? 0 : 48))
  const rooms = []
  all.forEach((_, k) => { rooms[depth[k]] = Math.max(rooms[depth[k]] ?? 0, wide[k]) })
  const starts = rooms.map((_, d) => 4 + rooms.slice(0, d).reduce((sum, room) => sum + room + GAP, 0))
  const [width, height] = [starts.at(-1) + rooms.at(-1) + 8, Math.max(...y) + PITCH]
  const drawn = svg("svg", {width, height, viewBox: `0 0 ${width} ${height}`, class: "tree", role: "img", "aria-label": title})
  const kind = k => `${all[k].fate} ${strong.has(k) ? "best" : ""} ${second.has(k) ? "other" : ""}`
  const edges = svg("g"), boxes = svg("g")
  all.forEach((node, k) => {
    const x = starts[depth[k]]
    if (node.parent !== null) {
      const from = starts[depth[node.parent]] + wide[node.parent], middle = (from + x) / 2
      edges.append(svg("path", {d: `M${from} ${y[node.parent]}C${middle} ${y[node.parent]} ${middle} ${y[k]} ${x} ${y[k]}`, class: `edge ${kind(k)}`}))
    }
    const box = svg("g", {class: `node ${kind(k)}`}, svg("rect", {x, y: y[k] - 11, width: wide[k], height: 22, rx: 6}),
      svg("text", {x: x + 8, y: y[k] + 4}, node.piece))
    if (node.score !== undefined)
      box.append(svg("text", {x: x + wide[k] - 7, y: y[k] + 4, "text-anchor": "end", class: "score"}, shown(node.score)),
        svg("title", {}, `${node.piece}: ${node.fate}; log-probability ${shown(node.log_probability, 4)}, sum ${shown(node.score, 4)}`))
    boxes.append(box)
  })
  drawn.append(edges, boxes)
  return element("figure", {class: "card"}, element("figcaption", {}, title), element("div", {class: "wide", tabIndex: 0, role: "group", "aria-label": "the tree; arrow keys scroll it"}, drawn))
}

/** Leaves one below another, a parent midway between its first and its last child. */
function places(nodes) {
  const children = nodes.map(() => []), depth = []
  nodes.forEach((node, k) => {
    depth.push(node.parent === null ? 0 : depth[node.parent] + 1)
    if (node.parent !== null) children[node.parent].push(k)
  })
  const y = nodes.map(() => 0)
  let leaves = 0
  const waiting = [[0, false]]
  while (waiting.length) {
    const [k, grown] = waiting.pop()
    if (grown) y[k] = (y[children[k][0]] + y[children[k].at(-1)]) / 2
    else if (children[k].length) waiting.push([k, true], ...children[k].toReversed().map(child => [child, false]))
    else y[k] = 18 + PITCH * leaves++
  }
  return {depth, y}
}
