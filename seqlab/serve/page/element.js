// Elements made of names, properties and children. Strings become text nodes; nothing here parses markup.

/** element("p", {class: "hint"}, "some text", child): sets properties of the element, attributes if it has no such
 *  property, and listeners for `on...`. */
export function element(name, properties = {}, ...children) {
  const node = document.createElement(name)
  setProperties(node, properties)
  node.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false))
  return node
}

const SVG = "http://www.w3.org/2000/svg"

export function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value)
  node.append(...children)
  return node
}

function setProperties(node, properties) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value)
    else if (key === "class") node.className = value
    else if (key in node && !key.startsWith("aria") && key !== "role" && key !== "list") node[key] = value
    else node.setAttribute(key, value)
  }
}

let lastId = 0

/** A unique id, for labels and descriptions. */
export const uniqueId = what => `${what}-${++lastId}`

/** A number with three significant digits and a minus sign. */
export function formatNumber(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "none"
  const size = Math.abs(value)
  const text = size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(digits - 1)
    : size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)))
  return text.replaceAll("-", "−")
}

/** A share in per cent. */
export const percent = value => value > 0 && value < 0.001 ? "< 0.1 %" : `${(100 * value).toFixed(1)} %`

/** Text in an element of its own, so that its direction does not affect the text around it. */
export const bdiText = (text, name = "bdi") => element(name, {dir: "auto"}, text)
