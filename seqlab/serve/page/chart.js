// Line charts and bars; pointing at a chart shows the values.
import {CATEGORICAL} from "./palette.js"
import {element, formatNumber, svg} from "./element.js"

const [WIDTH, HEIGHT, LEFT, BOTTOM] = [480, 230, 52, 40]

/** A chart of series [{name, x, y, dashed}]; `labels` are the names of x = 0, 1, ... */
export function chart({title, series, xTitle = "", yTitle = "", labels = null}) {
  const points = series.flatMap(({x, y}) => x.map((value, k) => [value, y[k]])).filter(([, y]) => Number.isFinite(y))
  const [x0, x1] = range(points.map(([x]) => x), 0), [y0, y1] = range(points.map(([, y]) => y), 0.05)
  const across = x => LEFT + (x - x0) / (x1 - x0) * (WIDTH - LEFT - 16)
  const up = y => HEIGHT - BOTTOM - (y - y0) / (y1 - y0) * (HEIGHT - BOTTOM - 12)
  const figure = svg("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "chart", role: "img", tabindex: 0,
    "aria-label": `${title}: ${series.map(summary).join("; ")}`})
  for (const tick of ticks(y0, y1, 5))
    figure.append(svg("line", {x1: LEFT, x2: WIDTH - 16, y1: up(tick), y2: up(tick), class: "stroke-rule"}),
      svg("text", {x: LEFT - 8, y: up(tick) + 4, "text-anchor": "end", class: "fill-muted"}, formatNumber(tick)))
  const names = labels && x1 - x0 < 40 ? labels.map((name, k) => [k, name]) : ticks(x0, x1,
    5).map(tick => [tick, formatNumber(tick)])
  for (const [tick, name] of names)
    figure.append(svg("text", {x: across(tick), y: HEIGHT - BOTTOM + 18, "text-anchor": "middle", class: "fill-muted"},
      name))
  figure.append(svg("text", {x: (LEFT + WIDTH) / 2, y: HEIGHT - 4, "text-anchor": "middle", class: "fill-muted"},
    xTitle))
  series.forEach(({x, y, dashed}, s) => {
    const path = x.map((value,
      k) => Number.isFinite(y[k]) ? `${across(value).toFixed(1)},${up(y[k]).toFixed(1)}` : null).filter(Boolean)
    const line = svg("polyline", {points: path.join(" "), class: "curve", "stroke-dasharray": dashed ? "5 4" : null})
    line.style.stroke = CATEGORICAL[s % CATEGORICAL.length]
    figure.append(line)
    if (path.length === 1) {
      const dot = svg("circle", {cx: path[0].split(",")[0], cy: path[0].split(",")[1], r: 3})
      dot.style.fill = CATEGORICAL[s % CATEGORICAL.length]
      figure.append(dot)
    }
  })
  const cursor = svg("line", {y1: 8, y2: HEIGHT - BOTTOM, class: "stroke-edge", visibility: "hidden"})
  figure.append(cursor)
  const legend = element("p", {class: "legend"})
  const updateLegend = place => legend.replaceChildren(...series.map(({name, x, y}, s) => {
    const k = place === null ? x.length - 1 : nearest(x, place)
    const key = element("i", {class: "swatch"})
    key.style.background = CATEGORICAL[s % CATEGORICAL.length]
    return element("span", {}, key, ` ${name} `, element("b", {"data-series": name, "data-value": String(y[k])},
      formatNumber(y[k], 4)),
      element("small", {}, ` at ${labels?.[x[k]] ?? formatNumber(x[k], 6)}`))
  }))
  figure.addEventListener("pointermove", event => {
    const box = figure.getBoundingClientRect()
    const place = x0 + ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - 16) * (x1 - x0)
    const here = across(series[0].x[nearest(series[0].x, place)])
    cursor.setAttribute("x1", here)
    cursor.setAttribute("x2", here)
    cursor.setAttribute("visibility", "visible")
    updateLegend(place)
  })
  figure.addEventListener("pointerleave", () => { cursor.setAttribute("visibility", "hidden"); updateLegend(null) })
  updateLegend(null)
  return element("figure", {class: "card"}, element("figcaption", {}, title,
    yTitle ? element("small", {}, ` (${yTitle})`) : null), figure, legend)
}

/** Bars of numbers with names, negative ones in another colour; a full bar is `limit`. */
export function bars(rows, {label, limit = Math.max(1e-12, ...rows.map(([, value]) => Math.abs(value)))}) {
  return element("table", {class: "bars"}, element("caption", {class: "unseen"}, label),
    ...rows.map(([name, value]) => {
    const bar = element("i", {class: value < 0 ? "bar less" : "bar"})
    bar.style.width = `${(100 * Math.abs(value) / limit).toFixed(1)}%`
    return element("tr", {}, element("th", {scope: "row"}, element("bdi", {}, name)),
      element("td", {"data-value": String(value)}, formatNumber(value)),
      element("td", {class: "track"}, bar))
  }))
}

const summary = ({name, y}) => `${name} from ${formatNumber(y[0])} to ${formatNumber(y.at(-1))}`

function range(values, margin) {
  let [low, high] = [Infinity, -Infinity]
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value) }
  if (low > high) return [0, 1]
  const more = margin * (high - low) || (high === low ? 0.5 : 0)
  return [low - more, high + more]
}

/** At most `most` round numbers within a range. */
function ticks(low, high, most) {
  const power = 10 ** Math.floor(Math.log10((high - low) / most))
  const step = [1, 2, 5, 10, 20].map(times => times * power).find(each => (high - low) / each <= most)
  const result = []
  for (let k = Math.ceil(low / step); k * step <= high + 1e-9; k++) result.push(Number((k * step).toPrecision(12)))
  return result
}

function nearest(x, place) {
  let best = 0
  for (let k = 1; k < x.length; k++) if (Math.abs(x[k] - place) < Math.abs(x[best] - place)) best = k
  return best
}
