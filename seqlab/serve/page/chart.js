// Curves in SVG: few, named, read by pointing.
import {CATEGORICAL} from "./palette.js"
import {element, shown, svg} from "./element.js"

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [480, 230, 52, 40]

/** A figure of series [{name, x, y, dashed}]; `labels` name x = 0, 1, ... */
export function chart({title, series, xTitle = "", yTitle = "", labels = null}) {
  const points = series.flatMap(({x, y}) => x.map((value, k) => [value, y[k]])).filter(([, y]) => Number.isFinite(y))
  const [x0, x1] = range(points.map(([x]) => x), 0), [y0, y1] = range(points.map(([, y]) => y), 0.05)
  const across = x => LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - 16)
  const up = y => HEIGHT - BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - BOTTOM - 12)
  const drawn = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", tabindex: 0,
    "aria-label": `${title}: ` + series.map(s => `${s.name} from ${shown(s.y[0])} to ${shown(s.y.at(-1))}`).join("; ")})
  for (const tick of ticks(y0, y1, 5))
    drawn.append(svg("line", {x1: LEFT, x2: WIDTH - 16, y1: up(tick), y2: up(tick), class: "stroke-rule"}),
      svg("text", {x: LEFT - 8, y: up(tick) + 4, "text-anchor": "end", class: "fill-muted"}, shown(tick)))
  const names = labels && x1 - x0 < 40 ? labels.map((name, k) => [k, name]) : ticks(x0, x1,
    5).map(tick => [tick, shown(tick)])
  for (const [tick, name] of names)
    drawn.append(svg("text", {x: across(tick), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle", class: "fill-muted"},
      name))
  drawn.append(svg("text", {x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle", class: "fill-muted"},
    xTitle))
  series.forEach(({x, y, dashed}, s) => {
    const path = x.map((value,
      k) => Number.isFinite(y[k]) ? `${across(value).toFixed(1)},${up(y[k]).toFixed(1)}` : null).filter(Boolean)
    const line = svg("polyline", {points: path.join(" "), class: "curve", "stroke-dasharray": dashed ? "5 4" : null})
    line.style.stroke = CATEGORICAL[s % CATEGORICAL.length]
    drawn.append(line)
    if (path.length === 1) {
      const dot = svg("circle", {cx: path[0].split(",")[0], cy: path[0].split(",")[1], r: 3})
      dot.style.fill = CATEGORICAL[s % CATEGORICAL.length]
      drawn.append(dot)
    }
  })
  const cursor = svg("line", {y1: 8, y2: HEIGHT - BOTTOM, class: "stroke-edge", visibility: "hidden"})
  drawn.append(cursor)
  const legend = element("p", {class: "legend"})
  const tell = place => legend.replaceChildren(...series.map(({name, x, y}, s) => {
    const k = place === null ? x.length - 1 : nearest(x, place)
    const key = element("i", {class: "swatch"})
    key.style.background = CATEGORICAL[s % CATEGORICAL.length]
    return element("span", {}, key, ` ${name} `, element("b", {"data-series": name, "data-value": String(y[k])},
      shown(y[k], 4)),
      element("small", {}, ` at ${labels?.[x[k]] ?? shown(x[k], 6)}`))
  }))
  drawn.addEventListener("pointermove", event => {
    const box = drawn.getBoundingClientRect()
    const place = x0 + ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - 16) * (x1 - x0)
    const here = across(series[0].x[nearest(series[0].x, place)])
    cursor.setAttribute("x1", here)
    cursor.setAttribute("x2", here)
    cursor.setAttribute("visibility", "visible")
    tell(place)
  })
  drawn.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); tell(null) })
  tell(null)
  return element("figure", {class: "card"}, element("figcaption", {}, title,
    yTitle ? element("small", {}, ` (${yTitle})`) : null), drawn, legend)
}

/** Bars of numbers with names, those below zero in another colour; a whole bar is `far`. */
export function bars(rows, {label, far = Math.max(1e-12, ...rows.map(([, value]) => Math.abs(value)))}) {
  return element("table", {class: "bars"}, element("caption", {class: "unseen"}, label),
    ...rows.map(([name, value]) => {
    const bar = element("i", {class: value < 0 ? "bar less" : "bar"})
    bar.style.width = `${(100 * Math.abs(value) / far).toFixed(1)}%`
    return element("tr", {}, element("th", {scope: "row"}, element("bdi", {}, name)),
      element("td", {"data-value": String(value)}, shown(value)),
      element("td", {class: "track"}, bar))
  }))
}

function range(values, room) {
  let [low, high] = [Infinity, -Infinity]
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value) }
  if (low > high) return [0, 1]
  const more = room * (high - low) || (high === low ? 0.5 : 0)
  return [low - more, high + more]
}

/** At most so many round numbers within a range. */
function ticks(low, high, most) {
  const power = 10 ** Math.floor(Math.log10((high - low) / most))
  const step = [1, 2, 5, 10, 20].map(times => times * power).find(each => (high - low) / each <= most)
  const found = []
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9; k++) found.push(Number((k * step).toPrecision(12)))
  return found
}

function nearest(x, place) {
  let best = 0
  for (let k = 1; k < x.length; k++) if (Math.abs(x[k] - place) < Math.abs(x[best] - place)) best = k
  return best
}
