// Elements from names, properties and children. Text is always text: nothing here parses markup.

/** element("p", {class: "hint"}, "some text", child): a property is set where the element has it, else an attribute;
 *  `on...` is a listener. */
export function element(name, properties = {}, ...children) {
  const made = document.createElement(name)
  adorn(made, properties)
  made.append(...children.flat().filter(child => child !== null && child !== undefined && child !== false))
  return made
}

const SVG = "http://www.w3.org/2000/svg"

export function svg(name, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, name)
  for (const [key, value] of Object.entries(attributes)) if (value !== null) made.setAttribute(key, value)
  made.append(...children)
  return made
}

function adorn(made, properties) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value)
    else if (key === "class") made.className = value
    else if (key in made && !key.startsWith("aria") && key !== "role" && key !== "list") made[key] = value
    else made.setAttribute(key, value)
  }
}

let numbered = 0

/** An id that no other element has, for labels and descriptions. */
export const fresh = what => `${what}-${++numbered}`

/** A number as a person reads it: three digits, a true minus. */
export function shown(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "none"
  const size = Math.abs(value)
  const text = size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(digits - 1)
    : size >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(digits)))
  return text.replaceAll("-", "−")
}

/** A share as per cent. */
export const percent = value => value > 0 && value < 0.001 ? "< 0.1 %" : `${(100 * value).toFixed(1)} %`

/** Text of any direction and any characters, as text. */
export const quoted = (text, name = "bdi") => element(name, {dir: "auto"}, text)
